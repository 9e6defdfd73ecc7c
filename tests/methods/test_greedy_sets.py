"""Greedy facility location, checked against a loop over fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tokencover.methods._shared.greedy_sets import STEPS, choose_cover, compare_in_steps

Table = Sequence[Sequence[int | Fraction]]


def slow_cover(table: Table, saliency: Sequence[float], count: int, alpha: float) -> list[int]:
    """Weigh every token again in every step."""
    chosen: list[int] = []
    everyone = range(len(saliency))
    while len(chosen) < min(count, len(saliency)):
        covered = [max((table[i][j] for i in chosen), default=0) for j in everyone]
        scores = {
            i: sum((max(0, table[i][j] - covered[j]) for j in everyone), Fraction(0))
            * Fraction(saliency[i] ** alpha)
            for i in everyone
            if i not in chosen
        }
        if max(scores.values()) > 0:
            chosen.append(min(scores, key=lambda i: (-scores[i], i)))
        else:
            chosen.append(min(scores, key=lambda i: (-saliency[i], i)))
    return chosen


def slow_cosines(tokens: Tensor) -> list[list[Fraction]]:
    """Negative ones count as 0; a token has exactly 1 with itself, so that mirrored gains tie."""
    rows = [[float(value) for value in token] for token in tokens.double()]
    squares = [sum(value * value for value in row) for row in rows]

    def between(i: int, j: int) -> Fraction:
        dot = sum(a * b for a, b in zip(rows[i], rows[j], strict=True))
        return Fraction(dot / math.sqrt(squares[i] * squares[j])) if dot > 0 else Fraction(0)

    return [[between(i, j) for j in range(len(rows))] for i in range(len(rows))]


@st.composite
def tables(draw: st.DrawFn) -> list[list[int]]:
    """Symmetric, with few different numbers so that ties are common."""
    size = draw(st.integers(1, 7))
    table = [[0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1):
            table[i][j] = table[j][i] = draw(st.sampled_from([0, 0, 1, 2, 3, 2**32 - 1, 2**32]))
    return table


@given(tables(), st.data(), st.sampled_from([0, 1, 1.0, 2]))
def test_it_is_the_loop(table: list[list[int]], data: st.DataObject, alpha: float) -> None:
    dyadic = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])  # whose products are exact
    saliency = data.draw(st.lists(dyadic, min_size=len(table), max_size=len(table)))
    count = data.draw(st.integers(0, len(table) + 2))
    similarity = torch.tensor(table, dtype=torch.float64)
    found = choose_cover(similarity, torch.tensor(saliency), count, alpha)
    assert found.tolist() == slow_cover(table, saliency, count, alpha)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.5])
def test_updated_gains_equal_recomputed_sums(alpha: float) -> None:
    make = torch.Generator().manual_seed(3)
    similarity = compare_in_steps(torch.randn(60, 6, generator=make))
    saliency = torch.rand(60, generator=make)
    table = [[int(value) for value in row] for row in similarity.tolist()]
    found = choose_cover(similarity, saliency, 40, alpha)
    assert found.tolist() == slow_cover(table, saliency.tolist(), 40, alpha)


def test_cover_token_order_same_choice() -> None:
    make = torch.Generator().manual_seed(5)
    tokens, saliency = torch.randn(300, 129, generator=make), torch.rand(300, generator=make)
    mixed = torch.randperm(300, generator=make)
    there = choose_cover(compare_in_steps(tokens), saliency, 120)
    here = choose_cover(compare_in_steps(tokens[mixed]), saliency[mixed], 120)
    assert mixed[here].tolist() == there.tolist()


@pytest.mark.parametrize("power", [0.3, 0.5, 1.7])
def test_equal_saliency_is_equal_after_a_power(power: float) -> None:
    """Whatever the place in the tensor: the lowest index wins in every step."""
    for size in range(1, 24):
        saliency = torch.full((size,), 0.123456)
        found = choose_cover(torch.eye(size, dtype=torch.float64), saliency, size, power)
        assert found.tolist() == list(range(size))


def test_similarities_are_cosines_on_a_grid() -> None:
    tokens = torch.randn(40, 33, generator=torch.Generator().manual_seed(1))
    tokens = torch.cat([tokens, -tokens[:3], 5 * tokens[:3], torch.zeros(2, 33)])
    found = compare_in_steps(tokens)
    assert torch.equal(found, found.round())
    assert torch.equal(found, found.T)
    assert found.diagonal().tolist() == [STEPS] * 46 + [0.0] * 2
    assert found[torch.arange(3), torch.arange(43, 46)].tolist() == [STEPS] * 3
    assert float(found.min()) == 0
    expected = torch.tensor([[float(each) for each in row] for row in slow_cosines(tokens)])
    torch.testing.assert_close(found / STEPS, expected.double(), atol=1e-7, rtol=0)
