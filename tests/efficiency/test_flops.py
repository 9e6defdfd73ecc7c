"""The FLOPs model against PyTorch's own counter, on every family."""

from __future__ import annotations

from collections import Counter
from inspect import signature
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tests.pruning.random_method import KeepRandom
from tests.zoo import ZOO
from tokencover.efficiency.instruments import FlopCounter
from tokencover.efficiency.workload import compute_prefill_cost
from tokencover.errors import InputError
from tokencover.families import compute_block_cost, family_of
from tokencover.pruning.prune import prune


def count_operations(model: Any, inputs: dict[str, Any], **options: Any) -> Counter[str]:
    """What the counter sees in the decoder's blocks, the head, and everything else."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(**inputs, use_cache=False, **options)
    counts = {name: sum(values.values()) for name, values in counter.get_flop_counts().items()}
    top = type(model).__name__
    decoder = f"{top}.{family_of(model).decoder}"
    prefix = f"{decoder}.layers."
    head = next(value for name, value in counts.items() if name.endswith(".lm_head"))
    projector = counts.get(f"{top}.{family_of(model).projector}", 0)
    found: Counter[str] = Counter(head=head, projector=projector)
    for name, value in counts.items():
        if name.startswith(prefix) and "." not in name.removeprefix(prefix):
            found["blocks"] += value
    others = found["head"] + counts.get(f"{top}.{family_of(model).base}.audio_tower", 0)
    found["vision"] = counter.get_total_flops() - counts[decoder] - others
    return found


def allow_for_mean(model: Any, operations: int) -> Any:
    """Exactly so many; or nearly, where blocks differ and each counts as their mean."""
    family = family_of(model)
    config = model.get_submodule(family.decoder).config
    alike = len({compute_block_cost([block], config) for block in family.layers(model)}) == 1
    return operations if alike else pytest.approx(operations, rel=0.05)


RECURRENT = [name for name, entry in ZOO.items() if entry.recurrent]


@pytest.mark.parametrize("name", [name for name in ZOO if name not in RECURRENT])
def test_prefill_flops_equal_flop_counter(name: str) -> None:
    entry = ZOO[name]
    model: Any = entry.build("eager").requires_grad_(False)  # the counter stumbles over Idefics2's
    inputs = entry.inputs("single", "left")
    cost, length = compute_prefill_cost(model), inputs["input_ids"].shape[1]
    can_predict_one = "logits_to_keep" in signature(model.forward).parameters
    options = {"logits_to_keep": 1} if can_predict_one else {}
    plain = count_operations(model, inputs, **options)
    predicted = 1 if can_predict_one else length
    assert plain["blocks"] + plain["head"] == cost.of([length] * 5, predicted=predicted)

    with prune(model, KeepRandom(7, (1, 3)), prompt=entry.user_words(inputs)) as run:
        pruned = count_operations(model, inputs)
    trace = run.trace[0]
    lengths = [length - trace.visual_tokens + count for count in trace.tokens_per_layer]
    assert lengths[0] == length
    assert lengths[-1] < lengths[1] < length
    expected = cost.of(lengths, predicted=length)
    assert pruned["blocks"] + pruned["head"] == allow_for_mean(model, expected)
    assert trace.flops == cost.of(lengths, predicted=0)

    if name not in (
        "fast_vlm",
        "paligemma2",
    ):  # no attention; Gemma 2 has no sdpa
        model.set_attn_implementation("sdpa")
    base = model.get_submodule(family_of(model).base)
    counter = FlopCounter()
    with counter.watch_encoder(base), torch.no_grad():
        model(**inputs)
    assert "get_image_features" not in vars(base)
    outside = plain["projector"] if name == "llama4" else 0  # it projects after its encoder
    assert counter.vision == plain["vision"] - outside > 0


@pytest.mark.parametrize("name", RECURRENT)
def test_layers_without_attention_cost_linear(name: str) -> None:
    """The counter sees matrices that work on chunks of a text; here the state of each counts."""
    entry = ZOO[name]
    model: Any = entry.build("eager").requires_grad_(False)
    inputs = entry.inputs("single", "left")
    length = inputs["input_ids"].shape[1]
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(**inputs, use_cache=False)
    counts = {name: sum(values.values()) for name, values in counter.get_flop_counts().items()}
    decoder = model.get_submodule(family_of(model).decoder)
    expected = 0
    for number, block in enumerate(decoder.layers):
        path = f"{type(model).__name__}.{family_of(model).decoder}.layers.{number}"
        expected += counts[path]
        for part in ("linear_attn", "conv"):
            if hasattr(block, part):
                expected -= counts[f"{path}.{part}"]
                expected += length * count_by_hand(getattr(block, part))
    found = compute_prefill_cost(model).of([length] * 5, predicted=0)
    assert abs(found - expected) < 5 * (length + length**2)  # the mean of blocks is rounded


def count_by_hand(mixer: Any) -> int:
    """Operations for one token of linear attention or a short convolution."""
    linear = [part for part in mixer.modules() if isinstance(part, nn.Linear)]
    total = sum(2 * part.in_features * part.out_features for part in linear)
    convolution = next(part for part in mixer.modules() if isinstance(part, nn.Conv1d))
    total += 2 * convolution.out_channels * convolution.kernel_size[0]
    if hasattr(mixer, "num_v_heads"):
        state = mixer.num_v_heads * mixer.head_k_dim * mixer.head_v_dim
        total += 2 * state  # what a key finds in the state
        total += 2 * state  # the difference to the value is added
        total += 2 * state  # what a query finds
    return int(total)


def test_a_length_is_wanted_for_every_block() -> None:
    cost = compute_prefill_cost(ZOO["llava"].build())
    with pytest.raises(InputError, match="has 5 layers, got 2 lengths"):
        cost.of([10, 5])


def test_nonlinear_head_raises() -> None:
    model: Any = ZOO["llava"].build()
    model.lm_head = nn.Sequential(model.lm_head)
    with pytest.raises(InputError, match="head is a Sequential"):
        compute_prefill_cost(model)
