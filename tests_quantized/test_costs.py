"""What pruning costs and keeps does not depend on how weights are stored."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tokencover as tc
from tests.zoo import ZOO
from tests_quantized.models import build_wide, get_inputs, load_quantized
from tests_quantized.test_pruning import EACH
from tokencover.efficiency.instruments import FlopCounter, count_weight_bytes
from tokencover.efficiency.workload import compute_prefill_cost
from tokencover.families import family_of

METHODS = [
    tc.MoB(10, budget_mode="flops"),
    tc.FastV(12, budget_mode="flops"),
    tc.FastV(12, budget_mode="layer_mean"),
    tc.MoBStages(10, budget_mode="flops"),
    tc.PyramidDrop(12, budget_mode="flops"),
    tc.VisionZip(0.5, budget_mode="flops"),
]


def measure(model: Any, name: str, method: tc.Method) -> dict[str, Any]:
    """Whatever is counted in one pass."""
    inputs = get_inputs(name, "ragged")
    counter = FlopCounter()
    base = model.get_submodule(family_of(model).base)
    watched = counter.watch_method(method)
    prompt = ZOO[name].user_words(inputs)
    with (
        torch.no_grad(),
        counter.watch_encoder(base),
        tc.prune(model, watched, prompt=prompt) as run,
    ):
        model(**inputs)
    return {
        "layers": [trace.tokens_per_layer for trace in run.trace],
        "prefill": [trace.flops for trace in run.trace],
        "vision": counter.vision,
        "selection": counter.selection,
    }


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize(("name", "recipe"), EACH)
def test_budgets_and_operations_equal_float32(name: str, recipe: str, method: tc.Method) -> None:
    plain, model = build_wide(name), load_quantized(name, recipe)
    assert compute_prefill_cost(model) == compute_prefill_cost(plain)
    found, expected = measure(model, name, method), measure(plain, name, method)
    assert expected["vision"] > 0
    if isinstance(method, tc.MoB | tc.MoBStages):  # their search depends on the values
        assert found.pop("selection") == pytest.approx(expected.pop("selection"), rel=0.05)
    assert found == expected


@pytest.mark.parametrize(("name", "recipe"), EACH)
def test_weights_take_the_bytes_that_are_stored(name: str, recipe: str) -> None:
    """Embeddings and the head stay in float32; a quantized weight is half a byte or one."""
    plain, model = build_wide(name), load_quantized(name, recipe)
    linear = [
        part
        for key, part in plain.named_modules()
        if isinstance(part, torch.nn.Linear) and key != "lm_head"
    ]
    quantized = sum(part.weight.numel() for part in linear)
    others = count_weight_bytes(plain) - 4 * quantized
    stored = 0.5 if recipe.endswith(("int4", "nf4", "nf4-double")) else 1
    scales = count_weight_bytes(model) - others - stored * quantized
    assert 0 <= scales <= 0.4 * quantized
