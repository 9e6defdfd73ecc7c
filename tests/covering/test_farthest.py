"""Farthest point sampling: quality and starting sets."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import tokencover as tc
from tests.covering import oracle
from tests.covering.strategies import token_sets


@given(token_sets(), st.data())
def test_any_start_equals_the_oracle(visual: Tensor, data: st.DataObject) -> None:
    everyone = st.integers(0, len(visual) - 1)
    start = sorted(data.draw(st.sets(everyone, max_size=4)))
    count = data.draw(st.integers(0, len(visual) - len(start)))
    expected = oracle.choose_farthest(visual.numpy(), start, count)
    centers = torch.tensor(start, dtype=torch.int64)
    assert tc.farthest_points(visual, budget=count, start=centers).tolist() == expected


def test_copies_of_centers_follow_by_index() -> None:
    visual = torch.eye(3)[torch.arange(1200) % 3]  # more copies than are compared at a time
    found = tc.farthest_points(visual, budget=10, start=torch.tensor([5])).tolist()
    assert found == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]


def test_ties_beyond_one_pool_resolved() -> None:
    visual = torch.eye(1200)
    visual[3] = visual[1100]
    found = tc.farthest_points(visual, budget=1199, start=torch.tensor([3])).tolist()
    assert found == [*range(3), *range(4, 1100), *range(1101, 1200), 1100]


@given(token_sets(most=9), st.integers(1, 4))
def test_radius_at_most_twice_optimal(visual: Tensor, count: int) -> None:
    visual = visual[visual.norm(dim=1) > 0]
    if len(visual) == 0:
        return
    unit = torch.nn.functional.normalize(visual.double(), dim=1)
    table = (unit[:, None] - unit[None]).norm(dim=2)
    count = min(count, len(visual))

    def radius(centers: list[int]) -> float:
        return float(table[:, centers].amin(1).amax())

    best = min(radius(list(some)) for some in combinations(range(len(visual)), count))
    assert radius(tc.farthest_points(visual, budget=count).tolist()) <= 2 * best + 1e-5


def test_orders_are_nested() -> None:
    visual = torch.randn(200, 20, generator=torch.Generator().manual_seed(0))
    everything = tc.farthest_points(visual, budget=200).tolist()
    assert sorted(everything) == list(range(200))
    for count in (1, 7, 50, 199):
        assert tc.farthest_points(visual, budget=count).tolist() == everything[:count]


def test_more_than_there_are_gives_all() -> None:
    visual = torch.eye(4)
    assert tc.farthest_points(visual, budget=9, start=torch.tensor([2])).tolist() == [0, 1, 3]


def test_repeated_start_indices_count_once() -> None:
    assert tc.farthest_points(torch.eye(3), budget=3, start=torch.tensor([1, 1])).tolist() == [0, 2]


@pytest.mark.parametrize(
    ("start", "named"),
    [
        (torch.tensor([0, 9]), "9"),
        (torch.tensor([-1]), "-1"),
        (torch.tensor([0.5]), "float32"),
        (torch.tensor([[1]]), r"\(1, 1\)"),
    ],
)
def test_invalid_start_raises(start: Tensor, named: str) -> None:
    with pytest.raises(tc.InputError, match=named):
        tc.farthest_points(torch.eye(4), budget=2, start=start)
