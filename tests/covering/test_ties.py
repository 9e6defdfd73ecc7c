"""The tie rule: of equal values, the one with the lowest index comes first."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tokencover.covering.exact import (
    count_before,
    mark_largest,
    rank_ascending,
    rank_descending,
    select_largest,
    select_smallest,
)

VALUES = st.lists(
    st.sampled_from([-math.inf, -2.0, -0.0, 0.0, 0.5, 1.0, math.inf]), min_size=1, max_size=40
)


def places_by_value(values: list[float]) -> list[int]:
    """Python's sort keeps the order of equals, and -0.0 equals 0.0."""
    return sorted(range(len(values)), key=lambda place: -values[place])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@given(VALUES)
def test_equals_come_by_index(dtype: torch.dtype, values: list[float]) -> None:
    tensor = torch.tensor(values, dtype=dtype)
    expected = places_by_value(values)
    assert rank_descending(tensor).tolist() == expected
    assert rank_ascending(-tensor).tolist() == expected
    assert int(select_largest(tensor)) == expected[0]
    assert int(select_smallest(-tensor)) == expected[0]
    assert [int(count_before(tensor, place)) for place in expected] == [*range(len(values))]


@given(VALUES, st.integers(1, 45))
def test_marked_are_the_first_of_the_ranking(values: list[float], count: int) -> None:
    marked = mark_largest(torch.tensor(values), torch.tensor(count)).nonzero().squeeze(-1)
    first = [place for place in places_by_value(values)[:count] if values[place] > -math.inf]
    assert marked.tolist() == sorted(first)


def test_every_row_has_its_own_count() -> None:
    values = torch.tensor([[1.0, 1.0, 1.0], [2.0, 3.0, 2.0]])
    marked = mark_largest(values, torch.tensor([1, 2]))
    assert marked.tolist() == [[True, False, False], [True, True, False]]
    words = mark_largest(values.expand(2, 2, 3), torch.tensor([[1], [2]]))
    assert words[0].tolist() == [[True, False, False], [False, True, False]]
    assert words[1].tolist() == [[True, True, False], [True, True, False]]


@pytest.mark.parametrize(
    "values",
    [
        torch.tensor([[False, True, True], [True, False, True]]),
        torch.tensor([[0, 7, 7], [7, 0, 7]]),
    ],
)
def test_whole_numbers_and_booleans_have_ranks_too(values: Tensor) -> None:
    assert rank_descending(values).tolist() == [[1, 2, 0], [0, 2, 1]]
    assert rank_ascending(values).tolist() == [[0, 1, 2], [1, 0, 2]]


def test_many_equal_values_on_the_way() -> None:
    """Long rows take other paths through a sort than short ones."""
    values = torch.randint(0, 3, (4, 20_000), generator=torch.Generator().manual_seed(0)).float()
    for row, order in zip(values.tolist(), rank_descending(values).tolist(), strict=True):
        assert order == places_by_value(row)
    assert select_largest(values).tolist() == [row.index(2.0) for row in values.tolist()]
