"""MoB in stages: its counts, and its choice at each stage, against slow loops."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.covering.oracle import choose_farthest
from tests.covering.oracle import cosines as oracle_cosines
from tests.methods.views import hand_made
from tests.zoo import ZOO
from tokencover import InputError, MoBStages
from tokencover.methods import from_json, to_json
from tokencover.pruning import prune

SIZES, TAILS, BEFORE, HEADS = [20, 33, 9], [3, 2, 5], 2, 3


def draw(seed: int) -> tuple[list[Tensor], list[Tensor]]:
    """States of some samples, and maps of a block; quarters, so that head means tie often."""
    generator = torch.Generator().manual_seed(seed)
    states = [torch.randn(size, 6, generator=generator) for size in SIZES]
    lengths = [BEFORE + size + tail for size, tail in zip(SIZES, TAILS, strict=True)]
    maps = [
        (torch.randint(0, 4, (HEADS, each, each), generator=generator) / 4).tril()
        for each in lengths
    ]
    return states, maps


@pytest.mark.parametrize(
    ("depth", "stages"), [(32, (0, 11)), (28, (0, 9)), (11, (0, 4)), (2, (0, 1)), (1, (0,))]
)
def test_stages_go_with_the_depth(depth: int, stages: tuple[int, ...]) -> None:
    method = MoBStages(4)
    assert tuple(method.pruning_layers(depth)) == stages
    assert tuple(method.watched_layers(depth)) == stages[1:]


def test_stage_counts_follow_ratio() -> None:
    assert MoBStages(32).schedule(32, 576, 11) == [96] * 4 + [32] * 7
    assert MoBStages(7, (1, 3, 5), ratio=1.5).schedule(7, 50, 6) == [50, 16, 16, 11, 11, 7]
    assert MoBStages(400).schedule(400, 576, 11) == [576] * 4 + [400] * 7


@given(st.integers(1, 700), st.floats(1, 20), st.lists(st.integers(0, 11), min_size=1, max_size=4))
def test_schedule_monotonic_in_depth_and_count(total: int, ratio: float, places: list[int]) -> None:
    method = MoBStages(1, tuple(sorted(set(places))), ratio=ratio)
    for left in {1, (total + 1) // 2, total}:
        counts = method.schedule(left, total, 12)
        assert counts[-1] == left
        assert all(1 <= later <= earlier <= total for earlier, later in pairwise(counts))
        more = method.schedule(min(total, left + 1), total, 12)
        assert all(few <= many for few, many in zip(counts, more, strict=True))


@pytest.mark.parametrize("budget", [1, 2, 6, 0.3, 400])
@pytest.mark.parametrize("seed", [0, 1])
def test_first_stage_selects_farthest_points(seed: int, budget: float) -> None:
    states, _ = draw(seed)
    view = hand_made(states, before=BEFORE, behind=TAILS, block=0, depth=4)
    choice = MoBStages(budget, ratio=2).choose(view)
    for sample, size in enumerate(SIZES):
        left = min(budget, size) if isinstance(budget, int) else max(1, int(budget * size + 0.5))
        count = min(size, 2 * left)
        assert choice.kept[sample].tolist() == choose_farthest(states[sample].numpy(), [], count)
        assert len(choice.details[sample]["prompt_centers"]) == 0


@pytest.mark.parametrize("asked", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("seed", [2, 3])
def test_later_stages_combine_attention_and_cover(seed: int, asked: float) -> None:
    states, maps = draw(seed)
    view = hand_made(states, before=BEFORE, behind=TAILS, attention={2: maps}, block=2, depth=4)
    choice = MoBStages(5, (0, 2), asked=asked).choose(view)
    for sample, size in enumerate(SIZES):
        row = maps[sample][:, -1, BEFORE : BEFORE + size].mean(0).tolist()
        best = sorted(range(size), key=lambda token: (-row[token], token))[: round(5 * asked)]
        expected = best + choose_farthest(states[sample].numpy(), best, 5 - len(best))
        assert choice.kept[sample].tolist() == expected
        assert choice.details[sample]["prompt_centers"].tolist() == best
    for sample in range(len(SIZES)):
        alone = hand_made(
            [states[sample]],
            before=BEFORE,
            behind=TAILS[sample],
            attention={2: [maps[sample]]},
            block=2,
            depth=4,
        )
        (kept,) = MoBStages(5, (0, 2), asked=asked).choose(alone).kept
        assert kept.tolist() == choice.kept[sample].tolist()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stages": ()}, "ascending"),
        ({"stages": (4, 2)}, "ascending"),
        ({"stages": (-1, 2)}, "ascending"),
        ({"ratio": 0.9}, "ratio must be a number of at least 1, got 0.9"),
        ({"ratio": float("nan")}, "ratio must be"),
        ({"ratio": float("inf")}, "ratio must be"),
        ({"ratio": True}, "ratio must be"),
        ({"asked": 1.1}, "asked must be a number from 0 to 1, got 1.1"),
        ({"asked": float("nan")}, "asked must be"),
        ({"asked": -0.1}, "asked must be"),
        ({"folded": 2}, "folded must be a number from 0 to 1, got 2"),
        ({"budget": 0}, "budget"),
    ],
)
def test_invalid_settings_raise(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MoBStages(**{"budget": 64, **settings})


def test_stages_beyond_last_layer_raise() -> None:
    with pytest.raises(InputError, match=r"\(0, 12\) do not fit a model of 12 layers.*at most 11"):
        MoBStages(64, (0, 12)).pruning_layers(12)


@pytest.mark.parametrize("weight", [0.3, 1.0])
def test_dropped_tokens_are_folded_into_their_nearest(weight: float) -> None:
    states, _ = draw(5)
    states[1][7] = states[1][3] * 2  # as near to one center as its copy
    view = hand_made(states, before=BEFORE, behind=TAILS, block=0, depth=4)
    choice = MoBStages(2, folded=weight).choose(view)
    assert choice.hidden_states is not None
    for sample, size in enumerate(SIZES):
        kept = choice.kept[sample].tolist()
        sums, weights = states[sample].double().clone(), torch.ones(size, dtype=torch.float64)
        cosines = oracle_cosines(states[sample].numpy(), states[sample].numpy())
        for token in set(range(size)) - set(kept):
            nearest = max(kept, key=lambda center: cosines[token][center])
            sums[nearest] += weight * states[sample][token]
            weights[nearest] += weight
        expected = (sums / weights.unsqueeze(-1))[kept].float()
        torch.testing.assert_close(choice.hidden_states[sample, kept], expected)
    plain = MoBStages(2).choose(view)
    assert plain.hidden_states is None
    assert [each.tolist() for each in plain.kept] == [each.tolist() for each in choice.kept]


def test_gradients_flow_through_what_is_folded_in() -> None:
    tokens = torch.randn(9, 4, requires_grad=True)
    view = hand_made([tokens], block=0, depth=4)
    choice = MoBStages(1, folded=0.5).choose(view)
    assert choice.hidden_states is not None
    choice.hidden_states[0, choice.kept[0]].sum().backward()
    assert tokens.grad is not None
    assert (tokens.grad != 0).all()
    assert MoBStages(1, folded=0.5).merges
    assert not MoBStages(1).merges


def test_it_is_one_line_of_json() -> None:
    method = MoBStages(64, (0, 5), ratio=2.5, asked=0.5, folded=0.25, budget_mode="flops")
    assert from_json(to_json(method)) == method


def test_model_trace_contains_all_stages() -> None:
    entry = ZOO["llava"]
    model, inputs = entry.build("sdpa"), entry.inputs("single")
    method = MoBStages(3, (0, 2), asked=0.5)
    with torch.no_grad(), prune(model, method, prompt=inputs["attention_mask"].bool()) as run:
        model(**inputs)
    trace = run.trace[0]
    assert trace.tokens_per_layer == [9, 9, 3, 3, 3]
    centers = [*trace.prompt_centers.tolist(), *trace.visual_centers.tolist()]
    assert sorted(centers) == trace.kept.tolist()
    assert len(trace.prompt_centers) == 2
