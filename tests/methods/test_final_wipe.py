"""FinalWipe on models equals blocking every visual token from the wipe on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import tokencover as tc
from tests.methods.views import hand_made
from tests.pruning.random_method import KeepRandom, dropped_by
from tests.pruning.test_matrix import DISTINCT, built, generate, left_over, with_media
from tests.zoo import ZOO
from tests.zoo.entry import Inputs, Side, ZooEntry
from tests.zoo.oracle import blocked_forward_schedule, extended
from tokencover.methods import Method, to_json
from tokencover.methods.fastv import FastV
from tokencover.methods.final_wipe import FinalWipe
from tokencover.methods.pyramiddrop import PyramidDrop
from tokencover.methods.registry import from_json
from tokencover.methods.tome import ToMe

WIPE = 3


def gone_with_wipe(entry: ZooEntry, inputs: Inputs, inner: KeepRandom) -> dict[int, Tensor]:
    """What goes before each block, newline tokens by the wipe alone if the method keeps them."""
    visual, newline = entry.visual(inputs), entry.newline(inputs)
    seen = visual if newline is None or inner.drops_newlines else visual & ~newline
    return {**dropped_by(inner, inputs, seen), WIPE: visual}


@pytest.mark.parametrize(("drops_newlines", "side"), [(False, "left"), (True, "right")])
@pytest.mark.parametrize("entry", DISTINCT)
def test_it_equals_blocking_everything(entry: ZooEntry, drops_newlines: bool, side: Side) -> None:
    model = built(entry.name)
    for kind in {"mixed", "ragged", "video"} & set(with_media(entry)):
        inputs = entry.inputs(kind, side)
        inner = KeepRandom(5, (0, 2), drops_newlines=drops_newlines)
        gone = gone_with_wipe(entry, inputs, inner)
        method = FinalWipe(inner, block=WIPE)
        with torch.no_grad(), tc.prune(model, method, prompt=entry.user_words(inputs)) as run:
            found = model(**inputs, use_cache=False).logits
        expected = blocked_forward_schedule(model, inputs, gone)
        left = left_over(inputs, gone)
        torch.testing.assert_close(found[left], expected[left], atol=1e-5, rtol=0)
        for trace in run.trace:
            assert len(trace.kept) == 0
            assert trace.tokens_per_layer[WIPE:] == [0, 0]
            there = entry.visual(inputs)[trace.sample].nonzero().squeeze(-1)
            dropped = (gone[0] | gone[2])[trace.sample, there]
            assert trace.details["wiped"].tolist() == (~dropped).nonzero().squeeze(-1).tolist()


@pytest.mark.parametrize("name", ["llava", "llava_next", "qwen2_5_vl"])
def test_cached_decoding_equals_recomputation(name: str) -> None:
    entry, model = ZOO[name], built(name)
    inputs, inner = entry.inputs("ragged"), KeepRandom(6, (1,), drops_newlines=False)
    with torch.no_grad(), tc.prune(
        model, FinalWipe(inner, block=WIPE), prompt=entry.user_words(inputs)
    ):  # fmt: skip
        out = generate(
            model, inputs, max_new_tokens=4, do_sample=False, eos_token_id=10**6,
            output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
    words = out.sequences[:, inputs["input_ids"].shape[1] :]
    longer = extended(inputs, words[:, :-1])
    expected = blocked_forward_schedule(model, longer, gone_with_wipe(entry, longer, inner))
    torch.testing.assert_close(torch.stack(out.logits, 1), expected[:, -4:], atol=1e-5, rtol=0)


def test_features_added_after_wipe_are_ignored() -> None:
    """Qwen3-VL adds visual features after each of its first three blocks."""
    entry, model = ZOO["qwen3_vl"], built("qwen3_vl")
    inputs = entry.inputs("ragged")
    method = FinalWipe(KeepRandom(5, (0,)), block=1)
    with torch.no_grad(), tc.prune(model, method, prompt=entry.user_words(inputs)):
        found = model(**inputs, use_cache=False).logits
    visual = entry.visual(inputs)
    gone = {**dropped_by(method.inner, inputs, visual), 1: visual}  # type: ignore[arg-type]
    left = left_over(inputs, gone)
    expected = blocked_forward_schedule(model, inputs, gone)
    torch.testing.assert_close(found[left], expected[left], atol=1e-5, rtol=0)


def test_inner_details_reach_trace() -> None:
    entry, model = ZOO["llava_next"], built("llava_next")
    inputs = entry.inputs("ragged")
    words, mob = entry.user_words(inputs), tc.MoB(budget=6)
    with torch.no_grad():
        with tc.prune(model, mob, prompt=words) as plain:
            model(**inputs)
        with tc.prune(model, FinalWipe(mob, block=WIPE), prompt=words) as run:
            model(**inputs)
    assert len(run.trace) == len(plain.trace) == 3
    for found, expected in zip(run.trace, plain.trace, strict=True):
        assert torch.equal(found.details["wiped"], expected.kept)
        assert torch.equal(found.prompt_centers, expected.prompt_centers)
        assert torch.equal(found.visual_centers, expected.visual_centers)
        assert found.coupling == expected.coupling
        assert found.split == expected.split


def test_wipe_after_vision_merging_method() -> None:
    entry, model = ZOO["llava"], built("llava")
    inputs = entry.inputs("single")
    with torch.no_grad(), tc.prune(
        model, FinalWipe(ToMe(15), block=WIPE), prompt=entry.user_words(inputs)
    ) as run:  # fmt: skip
        model(**inputs)
    assert run.trace[0].tokens_per_layer == [15, 15, 15, 0, 0]


@pytest.mark.parametrize(("mean", "left"), [(192, 227), (128, 134), (64, 41)])
def test_layer_mean_counts_wiped_layers(mean: int, left: int) -> None:
    states, maps = [torch.zeros(576, 2)], [torch.rand(1, 581, 581)]
    view = hand_made(states, block=2, depth=32, attention={1: maps})
    inner = FastV(mean, budget_mode="layer_mean")
    method = FinalWipe(inner)
    assert len(method.choose(view).kept[0]) == left
    assert len(inner.choose(view).kept[0]) == round((32 * mean - 2 * 576) / 30)
    assert method.schedule(left, 576, 32) == [576] * 2 + [left] * 22 + [0] * 8


def test_equal_cost_counts_the_empty_blocks() -> None:
    states, maps = [torch.zeros(60, 2)], [torch.rand(1, 65, 65)]
    view = hand_made(states, block=2, depth=32, attention={1: maps})
    inner = FastV(24, budget_mode="flops")
    left = len(FinalWipe(inner).choose(view).kept[0])

    def spent(count: int) -> int:
        return round(2 * view.cost.of(65) + 22 * view.cost.of(count + 5) + 8 * view.cost.of(5))

    wanted = 32 * view.cost.of(24 + 5)
    assert spent(left) <= wanted <= spent(left + 1) or spent(left - 1) <= wanted <= spent(left)
    assert left > len(inner.choose(view).kept[0])


@pytest.mark.parametrize(
    ("block", "depth", "number"),
    [(0.75, 32, 24), (0.75, 6, 5), (0.75, 5, 4), (0.5, 6, 3), (9, 10, 9)],
)
def test_depth_fraction_gives_nearest_layer(block: int | float, depth: int, number: int) -> None:
    assert FinalWipe(FastV(8, after=1), block=block).pruning_layers(depth) == (1, number)


def test_wrapper_delegates_to_inner_method() -> None:
    inner = PyramidDrop(8, stages=(1, 2))
    method = FinalWipe(inner, block=4)
    assert method.positions == "reindex"
    assert method.drops_newlines
    assert not method.merges
    assert method.watched_layers(6) == inner.watched_layers(6)
    assert method.pruning_layers(6) == (1, 2, 4)
    tower = FinalWipe(ToMe(100))
    assert tower.vision_blocks(24, 22) == ToMe(100).vision_blocks(24, 22) != ()
    assert tower.inside_vision_blocks == ToMe(100).inside_vision_blocks
    assert tower.proportional_attention == ToMe(100).proportional_attention


def test_it_round_trips_as_json() -> None:
    method = FinalWipe(FastV(budget=0.25, after=1), block=20)
    assert from_json(to_json(method)) == method


@pytest.mark.parametrize("block", [0, -1, True, 0.0, 1.0, 1.5, "24"])
def test_invalid_wipe_layer_raises(block: Any) -> None:
    with pytest.raises(tc.InputError, match="fraction of the depth"):
        FinalWipe(FastV(8), block=block)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (FinalWipe(FastV(8, after=2), block=2), "Use a layer from 3 to 4"),
        (FinalWipe(FastV(8, after=2), block=5), "the model has 5 layers"),
        (FinalWipe(FastV(8, after=4)), "no layer is left for a wipe"),
    ],
)
def test_wipe_before_inner_method_raises(method: Method, message: str) -> None:
    with pytest.raises(tc.InputError, match=message):
        tc.prune(built("llava"), method)


@pytest.mark.parametrize("inner", [64, FinalWipe(FastV(8))])
def test_only_other_methods_can_be_wrapped(inner: Any) -> None:
    with pytest.raises(tc.InputError, match="wraps another method"):
        FinalWipe(inner)


def test_schedule_without_budget_raises() -> None:
    with pytest.raises(tc.InputError, match="KeepRandom has no budget"):
        FinalWipe(KeepRandom(5)).schedule(5, 10, 8)
