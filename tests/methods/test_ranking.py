"""Ranking: against Python's own sort."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tokencover import InputError
from tokencover.methods._shared.ranking import choose_best, select_highest

VALUES = st.sampled_from([-math.inf, -1.0, -0.0, 0.0, 1e-30, 0.5, 0.5000001, 2.0, math.inf])
TOKENS = st.lists(st.tuples(VALUES, st.booleans()), min_size=1, max_size=9)


def slow(scores: list[float], mask: list[bool], count: int) -> list[int]:
    there = [index for index, exists in enumerate(mask) if exists]
    return sorted(there, key=lambda index: (-scores[index], index))[:count]


def stacked(samples: list[list[tuple[float, bool]]]) -> tuple[Tensor, Tensor]:
    longest = max(map(len, samples))
    filled = [sample + [(math.nan, False)] * (longest - len(sample)) for sample in samples]
    scores = torch.tensor([[score for score, _ in sample] for sample in filled])
    return scores, torch.tensor([[exists for _, exists in sample] for sample in filled])


@given(st.lists(TOKENS, min_size=1, max_size=3), st.data())
def test_it_is_the_stable_sort(
    samples: list[list[tuple[float, bool]]], data: st.DataObject
) -> None:
    scores, mask = stacked(samples)
    counts = [data.draw(st.integers(0, int(exists.sum()))) for exists in mask]
    found = [index.tolist() for index in choose_best(scores, mask, counts)]
    assert found == [
        slow(row.tolist(), exists.tolist(), count)
        for row, exists, count in zip(scores, mask, counts, strict=True)
    ]


def test_many_ties_go_to_lowest_indices() -> None:
    scores = torch.zeros(1, 5000)
    scores[0, 4000] = 1.0
    scores[0, 1::2] = -0.0
    (found,) = choose_best(scores, torch.ones_like(scores, dtype=torch.bool), [4])
    assert found.tolist() == [4000, 0, 1, 2]


def test_half_precision_scores_compared_unrounded() -> None:
    scores = torch.tensor([[1.0, 1.001, 1.0, 2.0]], dtype=torch.bfloat16)
    (found,) = choose_best(scores, torch.ones(1, 4, dtype=torch.bool), [3])
    assert found.tolist() == [3, 0, 1]  # 1.001 is 1 in bfloat16


def test_count_above_available_raises() -> None:
    mask = torch.tensor([[True, True, True], [True, True, False]])
    with pytest.raises(InputError, match="sample 1 has 2 tokens to choose from, not 3"):
        choose_best(torch.zeros(2, 3), mask, [3, 3])


def test_nan_raises() -> None:
    scores = torch.tensor([[0.0, 1.0], [math.nan, 0.0]])
    with pytest.raises(InputError, match="token 0 of sample 1 is NaN"):
        choose_best(scores, torch.ones(2, 2, dtype=torch.bool), [1, 1])


@given(st.lists(VALUES, min_size=1, max_size=9), st.data())
def test_select_highest_equals_stable_sort(values: list[float], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(values)))
    found = select_highest(torch.tensor([values, values[::-1]]), count)
    for row, mine in zip((values, values[::-1]), found, strict=True):
        assert sorted(mine.tolist()) == sorted(slow(row, [True] * len(row), count))


def test_nan_among_many_best_raises() -> None:
    scores = torch.rand(2, 600, generator=torch.Generator().manual_seed(0))
    scores[1, 500] = math.nan
    with pytest.raises(InputError, match="token 500 of sample 1 is NaN"):
        choose_best(scores, torch.ones_like(scores, dtype=torch.bool), [64, 10])
