"""Copies, clusters, tokens too close for estimates: the same indices, and less work."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import tokencover as tc
from tests.covering import oracle
from tests.covering.search.wrong_estimates import disturb_estimates
from tests.covering.strategies import token_sets
from tokencover.covering import mob_literal, snap, tuning
from tokencover.covering.search import search
from tokencover.covering.search.exact_rounds import ExactRounds
from tokencover.covering.search.vectors import Vectors, find_first_copies


def draw(kind: str, count: int = 700, width: int = 80) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    visual, prompt = (torch.randn(size, width, generator=generator) for size in (count, 6))
    if kind == "copies":
        return visual[: count // 8].repeat(8, 1), prompt
    homes, spread = {
        "few clusters": (10, 0.1),
        "many clusters": (60, 0.3),
        "tight clusters": (5, 2e-2),
        "alike": (20, 1e-3),
        "nearly copies": (20, 2e-6),
    }[kind]
    return visual[torch.arange(count) % homes] + spread * visual, prompt


@pytest.mark.parametrize(
    "kind", ["copies", "few clusters", "many clusters", "tight clusters", "alike", "nearly copies"]
)
def test_equals_the_reference_implementation(kind: str) -> None:
    visual, prompt = draw(kind)
    found = tc.mob(visual, prompt, budget=200, prompt_budget=40, fold=8)
    tokens, words = snap(visual).grid, snap(prompt).grid
    slow = mob_literal(tokens, words, budget=200, prompt_budget=40, fold=8)
    assert isinstance(found, tc.Cover)
    assert found.prompt_centers.tolist() == slow.prompt_centers.tolist()
    assert found.visual_centers.tolist() == slow.visual_centers.tolist()


@settings(max_examples=80)
@given(token_sets(), st.data())
def test_exact_rounds_alone_equal_the_oracle(visual: Tensor, data: st.DataObject) -> None:
    start = sorted(data.draw(st.sets(st.integers(0, len(visual) - 1), min_size=1, max_size=4)))
    count = data.draw(st.integers(0, len(visual) - len(start)))
    few = data.draw(st.sampled_from([1, 3, 96]))
    with (
        disturb_estimates(data.draw(st.sampled_from([0.0, 0.3]))),
        patch.multiple(tuning, EXACT_POOL_MIN=few, EXACT_POOL_MAX=few, EXACT_BLOCK=2),
        patch.multiple(tuning, MAX_RIVALS=0, DECIDED_FRACTION=0),
    ):
        found = tc.farthest_points(visual, budget=count, start=torch.tensor(start)).tolist()
    assert found == oracle.choose_farthest(visual.numpy(), start, count)


@settings(max_examples=80)
@given(token_sets(most=12), st.data())
def test_copies_at_any_place_equal_the_oracle(visual: Tensor, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, len(visual) - 1), min_size=1, max_size=25))
    tokens = visual[places]
    start = sorted(data.draw(st.sets(st.integers(0, len(tokens) - 1), max_size=3)))
    count = data.draw(st.integers(0, len(tokens) - len(start)))
    found = tc.farthest_points(tokens, budget=count, start=torch.tensor(start).long()).tolist()
    assert found == oracle.choose_farthest(tokens.numpy(), start, count)


def test_first_copies_found_zero_tokens_excluded() -> None:
    tokens = torch.eye(4)[[0, 1, 0, 2, 1, 0]]
    tokens[3] = 0
    tokens = torch.cat([tokens, torch.zeros(1, 4)])
    tokens[0] *= 2  # another norm: the same direction, but no copy
    first = find_first_copies(tokens)
    assert first is not None
    assert first.tolist() == [0, 1, 2, 3, 1, 2, 6]
    assert find_first_copies(torch.randn(50, 9)) is None


def test_copies_take_no_part_in_the_search() -> None:
    visual, prompt = draw("copies")
    searched = []
    whole = search.search_distinct

    def watch(vectors: Vectors, *rest: object) -> Tensor:
        searched.append(len(vectors))
        return whole(vectors, *rest)  # type: ignore[arg-type]

    with patch.object(search, "search_distinct", watch):
        tc.mob(visual, prompt, budget=80, prompt_budget=10, fold=4)
    assert searched == [700 // 8]


@pytest.mark.parametrize(("kind", "most"), [("few clusters", 0), ("many clusters", 0)])
def test_clusters_need_no_exact_rounds(kind: str, most: int) -> None:
    """The bounds are made new instead, and estimates go on."""
    visual, prompt = draw(kind, count=2000)
    with patch.object(search, "ExactRounds", wraps=ExactRounds) as rounds:
        tc.mob(visual, prompt, budget=250, prompt_budget=40, fold=8)
    assert rounds.call_count == most


@pytest.mark.parametrize("width", [9, 16])
def test_repeated_frames_copies_and_differences_found(width: int) -> None:
    frame = torch.randn(6, width)
    assert _list_copies(frame.repeat(3, 1)) == 3 * [0, 1, 2, 3, 4, 5]
    assert _list_copies(frame[:1].repeat(5, 1)) == 5 * [0]
    last_differs = frame.repeat(3, 1)
    last_differs[-1, 1] += 1  # not in a coordinate that marks tokens
    assert _list_copies(last_differs) == [*(2 * [0, 1, 2, 3, 4, 5]), 0, 1, 2, 3, 4, 17]
    between = torch.cat([frame[:3], torch.randn(1, width), frame[:3]])
    assert _list_copies(between) == [0, 1, 2, 3, 0, 1, 2]


def _list_copies(tokens: Tensor) -> list[int]:
    found = find_first_copies(tokens)
    assert found is not None
    places: list[int] = found.tolist()
    return places
