"""Pruned quantized models equal the dense ones, by value, with weights that libraries quantized."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

import tokencover as tc
from tests.methods.cases import CASES, Case
from tests.pruning.gathering import always_gather
from tests.pruning.random_method import KeepRandom, dropped_by
from tests.pruning.test_prune import HOOKS
from tests.zoo import ZOO
from tests.zoo.oracle import blocked_forward_schedule, extended
from tests.zoo.vocabulary import FIRST_WORD, VOCABULARY_SIZE
from tests_quantized.dense_oracle import compare
from tests_quantized.models import (
    BFLOAT16_TOLERANCE,
    FAMILIES,
    RECIPES,
    build_wide,
    get_inputs,
    list_quantized_layers,
    load_quantized,
)
from tokencover.families import list_claims
from tokencover.methods import METHODS

EVERYWHERE = ("mob", "mob_stages", "fastv", "visionzip", "tome", "divprune")
"""Methods that run on all families; the remaining ones on LLaVA."""
EACH = [
    pytest.param(name, recipe, id=f"{name}-{recipe}") for name in FAMILIES for recipe in RECIPES
]
STEPS = 3
MERGES_AND_DROPS = "mustdrop"
"""It merges in the vision encoder and drops in the decoder, which `compare` cannot follow."""


def _claims(case: Case, name: str) -> bool:
    claims = list_claims(METHODS[case.method])
    return name in [kind for claim in claims for kind in claim.family.model_types]


CLAIMED = [
    (case, name, recipe)
    for case in CASES
    for name in FAMILIES
    for recipe in RECIPES
    if (name == "llava" or case.method in EVERYWHERE) and _claims(case, name)
]


def each_of(chosen: list[tuple[Case, str, str]]) -> pytest.MarkDecorator:
    """Run a test for each method, family and recipe."""
    named = [pytest.param(*each, id="-".join((each[0].id, *each[1:]))) for each in chosen]
    return pytest.mark.parametrize(("case", "name", "recipe"), named)


def make(case: Case, **changes: Any) -> tc.Method:
    """Build the method, without renumbering: the oracle keeps the positions."""
    settings: Any = METHODS[case.method]
    renumbers = "positions" in settings.__dataclass_fields__
    return case.make(**({"positions": "original"} if renumbers else {}), **changes)


def run_plain(model: PreTrainedModel, inputs: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(**inputs, use_cache=False).logits
    return logits


def compute_distance(found: Tensor, expected: Tensor) -> float:
    assert found.shape == expected.shape
    return float((found.float() - expected.float()).abs().max())


@pytest.mark.parametrize(("name", "recipe"), EACH)
def test_all_linear_layers_but_the_head_are_quantized(name: str, recipe: str) -> None:
    plain, model = build_wide(name), load_quantized(name, recipe)
    linear = [key for key, part in plain.named_modules() if isinstance(part, torch.nn.Linear)]
    assert list_quantized_layers(model) == [key for key in linear if key != "lm_head"]
    inputs = get_inputs(name, "ragged")
    assert 0.01 < compute_distance(run_plain(model, inputs), run_plain(plain, inputs)) < 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("name", "recipe"), EACH)
def test_tolerance_covers_unpruned_prefixes(name: str, recipe: str, dtype: torch.dtype) -> None:
    """Logits of a prefix do not depend on what follows, except for the library's own kernels."""
    model = load_quantized(name, recipe, dtype)
    distances = []
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(FIRST_WORD, VOCABULARY_SIZE, (1, 60), generator=generator)
        full = run_plain(model, {"input_ids": ids})
        for length in (5, 17, 33, 48):
            prefix = run_plain(model, {"input_ids": ids[:, :length]})
            distances.append(compute_distance(prefix, full[:, :length]))
    allowed = RECIPES[recipe].tolerance if dtype == torch.float32 else BFLOAT16_TOLERANCE
    assert max(distances) < allowed


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("name", "recipe"), EACH)
def test_dropping_equals_blocking(name: str, recipe: str, dtype: torch.dtype) -> None:
    entry, model = ZOO[name], load_quantized(name, recipe, dtype)
    allowed = RECIPES[recipe].tolerance if dtype == torch.float32 else BFLOAT16_TOLERANCE
    for kind in ("ragged", "mixed"):
        inputs = get_inputs(name, kind, dtype)
        method = KeepRandom(7, (1, 3))
        dropped = dropped_by(method, inputs, entry.visual(inputs))
        left = inputs["attention_mask"].bool() & ~sum(dropped.values()).bool()  # type: ignore[union-attr]
        with tc.prune(model, method, prompt=entry.user_words(inputs)):
            found = run_plain(model, inputs)
        expected = blocked_forward_schedule(model, inputs, dropped)
        assert compute_distance(found[left], expected[left]) < allowed
        assert compute_distance(run_plain(model, inputs)[left], expected[left]) > 3 * allowed


@each_of([each for each in CLAIMED if each[0].method != MERGES_AND_DROPS])
def test_method_equals_the_dense_oracle(case: Case, name: str, recipe: str) -> None:
    entry, model = ZOO[name], load_quantized(name, recipe)
    inputs = get_inputs(name, "single" if case.expected is None else "ragged")
    found, expected = compare(
        model, make(case), inputs, entry.user_words(inputs), entry.visual(inputs)
    )
    assert compute_distance(found, expected) < RECIPES[recipe].tolerance


@each_of([each for each in CLAIMED if each[0].keeps_all])
def test_keeping_all_equals_the_unpruned_model(case: Case, name: str, recipe: str) -> None:
    entry, model = ZOO[name], load_quantized(name, recipe)
    inputs = get_inputs(name, "ragged")
    real = inputs["attention_mask"].bool()
    with tc.prune(model, make(case, budget=1.0), prompt=entry.user_words(inputs)):
        found = run_plain(model, inputs)
    distance = compute_distance(found[real], run_plain(model, inputs)[real])
    assert distance < RECIPES[recipe].tolerance


@pytest.mark.parametrize(("name", "recipe"), EACH)
def test_keeping_all_is_bit_equal_and_gathering_within_tolerance(name: str, recipe: str) -> None:
    entry, model = ZOO[name], load_quantized(name, recipe)
    inputs = get_inputs(name, "ragged")
    real = inputs["attention_mask"].bool()
    plain, words = run_plain(model, inputs), entry.user_words(inputs)
    with tc.prune(model, KeepRandom(None), prompt=words):
        assert torch.equal(run_plain(model, inputs), plain)
    with always_gather(), tc.prune(model, KeepRandom(None), prompt=words):
        distance = compute_distance(run_plain(model, inputs)[real], plain[real])
    assert distance < RECIPES[recipe].tolerance


def list_contents(model: PreTrainedModel) -> dict[str, Any]:
    """Everything that modules carry; not their state dict, which bitsandbytes repacks to make."""
    found: dict[str, Any] = {}
    for name, module in model.named_modules():
        found[name] = type(module)
        for key, value in vars(module).items():
            if key in HOOKS:
                found[f"{name}.{key}"] = list(value)
            elif key in ("_parameters", "_buffers", "_modules"):
                found[f"{name}.{key}"] = {part: id(each) for part, each in value.items()}
            elif key != "rope_deltas":  # Qwen2.5-VL's own, of its latest prompt
                found[f"{name}.{key}"] = id(value)
    return found


@pytest.mark.parametrize("method", [tc.FastV(7), tc.MoB(7), tc.VisionZip(7), tc.ToMe(0.5)])
@pytest.mark.parametrize(("name", "recipe"), EACH)
def test_remove_restores_the_model(name: str, recipe: str, method: tc.Method) -> None:
    entry, model = ZOO[name], load_quantized(name, recipe)
    inputs = get_inputs(name, "ragged")
    plain = run_plain(model, inputs)
    before = list_contents(model)
    run = tc.prune(model, method, prompt=entry.user_words(inputs))
    assert list_contents(model) != before
    assert not torch.equal(run_plain(model, inputs)[:, -1], plain[:, -1])
    run.remove()
    assert list_contents(model) == before
    assert torch.equal(run_plain(model, inputs), plain)


@pytest.mark.parametrize(("name", "recipe"), EACH)
def test_cached_decoding_equals_recomputation(name: str, recipe: str) -> None:
    entry, model = ZOO[name], load_quantized(name, recipe)
    inputs = get_inputs(name, "ragged")
    method = KeepRandom(7, (1,))
    dropped = dropped_by(method, inputs, entry.visual(inputs))[1]
    # Not inference_mode, which optimum-quanto's 4-bit tensors cannot do.
    with torch.no_grad(), tc.prune(model, method, prompt=entry.user_words(inputs)):
        generate: Any = model.generate
        out = generate(
            **inputs, max_new_tokens=STEPS, do_sample=False, eos_token_id=10**6,
            output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
    written = out.sequences[:, inputs["input_ids"].shape[1] :]
    longer = extended(inputs, written[:, :-1])
    gone = torch.nn.functional.pad(dropped, (0, STEPS - 1))
    expected = blocked_forward_schedule(model, longer, {1: gone})[:, -STEPS:]
    distance = compute_distance(torch.stack(out.logits, 1), expected)
    assert distance < RECIPES[recipe].tolerance
