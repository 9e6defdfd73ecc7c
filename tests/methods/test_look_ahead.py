"""LookAhead against the attention of an unpruned model, and the paper's counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import tokencover as tc
from tests.methods.views import hand_made
from tests.pruning.test_matrix import built, left_over
from tests.zoo import ZOO
from tests.zoo.entry import SIDES, Inputs, Side, ZooEntry
from tests.zoo.oracle import blocked_forward_schedule
from tokencover.methods import to_json
from tokencover.methods.final_wipe import FinalWipe
from tokencover.methods.look_ahead import LookAhead
from tokencover.methods.registry import from_json
from tokencover.methods.twigvlm import TwigVLM

# DeepStack and Granite add visual features between layers, which a look-ahead does not. Layers of
# ERNIE 4.5 VL get a mask of visual tokens, and other layers build masks that are not known.
PLAIN = [
    pytest.param(entry, id=name)
    for name, entry in ZOO.items()
    if not entry.deepstack
    and not entry.own_masks
    and name != "granite4_vision"
    and (entry.alike is None or name == "ernie4_5_vl_moe")
]


def last_row(model: Any, inputs: Inputs, block: int) -> Tensor:
    """``(b, s)``, head mean of the last token's attention in a block of an eager model."""
    with torch.no_grad():
        maps = model(**inputs, use_cache=False, output_attentions=True).attentions[block]
    places = inputs["attention_mask"] * torch.arange(maps.shape[-1])
    return torch.stack(
        [row.mean(0)[last] for row, last in zip(maps, places.argmax(-1), strict=True)]
    )


def kept_by_rows(entry: ZooEntry, inputs: Inputs, scores: Tensor, count: int) -> Tensor:
    """Mask ``(b, s)`` of the tokens with the highest scores, newline tokens not counted."""
    newline, visual = entry.newline(inputs), entry.visual(inputs)
    patches = visual if newline is None else visual & ~newline
    kept = torch.zeros_like(visual)
    for row, mask in enumerate(patches):
        here = mask.nonzero().squeeze(-1).tolist()
        ranked = sorted(here, key=lambda place: (-float(scores[row, place]), place))
        kept[row, ranked[:count]] = True
    return kept


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("entry", PLAIN)
def test_keeps_largest_attention_layers_ahead(entry: ZooEntry, side: Side) -> None:
    model, eager = built(entry.name), built(entry.name, "eager")
    inputs = entry.inputs("ragged", side)
    visual, newline = entry.visual(inputs), entry.newline(inputs)
    patches = visual if newline is None else visual & ~newline
    kept = kept_by_rows(entry, inputs, last_row(eager, inputs, 3), 5)
    gone = {2: patches & ~kept, 4: visual}
    method = LookAhead(5, after=2, layers=2, wipe=4)
    with torch.no_grad(), tc.prune(model, method, prompt=entry.user_words(inputs)) as run:
        found = model(**inputs).logits
    for trace in run.trace:
        there = visual[trace.sample].nonzero().squeeze(-1)[trace.details["wiped"]]
        expected = kept[trace.sample] | (visual & ~patches)[trace.sample]
        assert there.tolist() == expected.nonzero().squeeze(-1).tolist()
        assert len(trace.kept) == 0
    left = left_over(inputs, gone)
    expected_logits = blocked_forward_schedule(model, inputs, gone)
    torch.testing.assert_close(found[left], expected_logits[left], atol=1e-5, rtol=0)


def test_no_wipe_keeps_tokens_to_end() -> None:
    entry, model = ZOO["llava"], built("llava")
    inputs = entry.inputs("single")
    method = LookAhead(5, after=1, layers=3, wipe=None)
    with torch.no_grad(), tc.prune(model, method, prompt=entry.user_words(inputs)) as run:
        model(**inputs)
    kept = kept_by_rows(entry, inputs, last_row(built("llava", "eager"), inputs, 3), 5)
    visual = entry.visual(inputs)[0].nonzero().squeeze(-1)
    assert visual[run.trace[0].kept].tolist() == kept[0].nonzero().squeeze(-1).tolist()
    assert run.trace[0].tokens_per_layer == [25, 5, 5, 5, 5]


@pytest.mark.parametrize("kind", [LookAhead, TwigVLM])
@pytest.mark.parametrize(
    ("mean", "total", "left"),
    [(192, 576, 227), (128, 576, 134), (64, 576, 41), (320, 2880, 204), (640, 2880, 670)],
)
def test_the_papers_counts(kind: Any, mean: int, total: int, left: int) -> None:
    view = hand_made([torch.zeros(total, 1)], block=2, depth=32)
    method = kind(mean, budget_mode="layer_mean")
    assert method.pruning_layers(32) == (2, 24)
    assert method.num_kept(view) == [left]
    counts = method.schedule(left, total, 32)
    assert counts == [total] * 2 + [left] * 22 + [0] * 8
    assert mean <= sum(counts) / 32 < mean + 22 / 32  # it rounds up


def test_mean_below_first_layers_raises() -> None:
    view = hand_made([torch.zeros(2880, 1)], block=2, depth=32)
    with pytest.raises(tc.InputError, match=r"mean of 160 .* at least 181"):
        LookAhead(160, budget_mode="layer_mean").num_kept(view)
    assert LookAhead(181, budget_mode="layer_mean").num_kept(view) == [2]


def test_a_large_mean_keeps_all() -> None:
    view = hand_made([torch.zeros(40, 1)], block=2, depth=32)
    assert LookAhead(39, budget_mode="layer_mean").num_kept(view) == [40]
    assert LookAhead(1.0, budget_mode="layer_mean", after=0).num_kept(view) == [40]


def test_default_budget_is_kept_count() -> None:
    view = hand_made([torch.zeros(40, 1), torch.zeros(3, 1)], block=2, depth=32)
    assert LookAhead(7).num_kept(view) == [7, 3]


def test_another_wipe_counts_too() -> None:
    view = hand_made([torch.zeros(576, 1)], block=2, depth=32)
    inner = LookAhead(64, budget_mode="layer_mean", wipe=None)
    rows = torch.rand(1, 2, 1, 576)
    looking = hand_made([torch.zeros(576, 1)], block=2, depth=32, ahead=lambda *_: rows)
    assert inner.num_kept(view) == [30]
    assert len(FinalWipe(inner, block=24).choose(looking).kept[0]) == 41


def test_the_next_blocks_are_named_by_number() -> None:
    asked: list[Any] = []

    def ahead(blocks: Any, queries: Tensor) -> Tensor:
        asked.append((list(blocks), queries.tolist()))
        return torch.zeros(1, 2, 1, 9)

    view = hand_made([torch.zeros(9, 1)], block=3, depth=8, ahead=ahead)
    assert LookAhead(4, after=3, layers=2).choose(view).kept[0].tolist() == [0, 1, 2, 3]
    assert asked == [([3, 4], [[13]])]


def test_it_round_trips_as_json() -> None:
    for method in (LookAhead(0.2, layers=2, wipe=None), TwigVLM(64, weights="pebble", wipe=20)):
        assert from_json(to_json(method)) == method


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": 0}, "layers must be"),
        ({"layers": True}, "layers must be"),
        ({"wipe": 1.0}, "fraction of the depth"),
        ({"after": -1}, "got -1"),
    ],
)
def test_invalid_settings_raise(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(tc.InputError, match=message):
        LookAhead(8, **settings)


def test_layers_beyond_depth_raise() -> None:
    with pytest.raises(tc.InputError, match="the model has 5"):
        tc.prune(built("llava"), LookAhead(8, after=3, layers=3))
