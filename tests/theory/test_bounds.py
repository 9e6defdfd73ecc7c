"""Bounds on covering numbers, and what is fitted to them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import tokencover as tc
from tests.covering.strategies import token_sets
from tokencover.theory.bounds import CoveringNumbers, fit_dimension, regularity

RADII = st.floats(0.01, 2.1)


def table_of(tokens: Tensor) -> np.ndarray:
    units = torch.nn.functional.normalize(tokens.double(), dim=1).numpy()
    table: np.ndarray = np.linalg.norm(units[:, None] - units[None], axis=-1)
    return table


def fewest_own_centers(table: np.ndarray, radius: float) -> int:
    """How many tokens cover all tokens, by trying every subset."""
    size = len(table)
    for count in range(1, size + 1):
        for chosen in itertools.combinations(range(size), count):
            if (table[:, chosen].min(1) <= radius).all():
                return count
    raise AssertionError("every token covers itself")


def fewest_in_one_dimension(values: list[float], radius: float) -> int:
    """How many intervals of this radius cover points of a line, which the sweep tells exactly."""
    count, reach = 0, -math.inf
    for value in sorted(values):
        if value > reach:
            count, reach = count + 1, value + 2 * radius
    return count


@settings(max_examples=60)
@given(token_sets(most=7), RADII)
def test_bounds_enclose_the_optimum_over_own_centers(tokens: Tensor, radius: float) -> None:
    """With centres anywhere fewer may do, never fewer than half the radius needs."""
    table = table_of(tokens)
    numbers = CoveringNumbers.of(tokens)
    slack = 1e-6  # on which side of the ball's edge a token lies
    assert numbers.lower(radius) <= fewest_own_centers(table, max(radius - slack, 0.0))
    assert numbers.upper(radius) >= fewest_own_centers(table, radius + slack)
    assert numbers.lower(radius) <= numbers.upper(radius)


@settings(max_examples=60)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12), st.floats(0.001, 0.5))
def test_bounds_enclose_number_on_short_arc(angles: list[float], radius: float) -> None:
    """On an arc of a circle a ball holds an interval of angles, and the sweep is optimal."""
    tokens = torch.tensor([[math.cos(angle), math.sin(angle)] for angle in angles])
    numbers = CoveringNumbers.of(tokens)
    half = math.asin(min(1.0, radius))  # a ball centred anywhere reaches this far to each side
    assert numbers.lower(radius) <= fewest_in_one_dimension(angles, half - 1e-5)
    assert numbers.upper(radius) >= fewest_in_one_dimension(angles, half + 1e-5)


@settings(max_examples=60)
@given(token_sets(most=12), RADII)
def test_lower_bound_packs_upper_bound_covers(tokens: Tensor, radius: float) -> None:
    table, numbers = table_of(tokens), CoveringNumbers.of(tokens)
    order = tc.farthest_points(tokens, budget=len(tokens)).tolist()
    apart = order[: numbers.lower(radius)]
    for first, second in itertools.combinations(apart, 2):
        assert table[first, second] > 2 * radius - 1e-6
    assert (table[:, order[: numbers.upper(radius)]].min(1) <= radius + 1e-6).all()


@settings(max_examples=60)
@given(
    token_sets(most=12),
    st.floats(0.1, 8.0),
    st.floats(0.01, 1.0),
    st.floats(1.0, 20.0),
    st.floats(0.0, 1.0),
)
def test_the_constants_hold_on_the_whole_interval(
    tokens: Tensor, dimension: float, smallest: float, stretch: float, place: float
) -> None:
    numbers = CoveringNumbers.of(tokens)
    largest = smallest * stretch
    found = regularity(numbers, dimension, smallest, largest)
    edges = [reach for reach in numbers.radius if smallest < reach < largest]
    edges += [gap / 2 for gap in numbers.separation if smallest < gap / 2 < largest]
    inside = smallest + place * (largest - smallest)
    for radius in [smallest, largest, inside, *edges, *(np.nextafter(e, 0.0) for e in edges)]:
        if not smallest <= radius <= largest:
            continue
        scale = float(radius) ** -dimension
        assert found.lower * scale <= numbers.lower(float(radius)) * (1 + 1e-9)
        assert found.upper * scale >= numbers.upper(float(radius)) * (1 - 1e-9)


def test_the_constants_cannot_be_better() -> None:
    """Two tokens at distance 1 on a circle, worked out by hand for d = 1."""
    tokens = torch.tensor([[1.0, 0.0], [0.5, math.sqrt(0.75)]])
    found = regularity(CoveringNumbers.of(tokens), 1.0, 0.25, 1.5)
    # Two balls needed below 1/2, where the bound is 1 from there on; two suffice below 1.
    assert found.lower == pytest.approx(min(2 * 0.25, 1 * 0.5))
    assert found.upper == pytest.approx(max(2 * 1.0, 1 * 1.5))


def patch_of_the_sphere(dimension: int) -> Tensor:
    generator = torch.Generator().manual_seed(dimension)
    flat = torch.rand(600, dimension, generator=generator)
    tokens = torch.cat([torch.full((600, 1), 4.0), flat, torch.zeros(600, 4)], dim=1)
    width = tokens.shape[1]
    turn: Tensor = torch.linalg.qr(torch.randn(width, width, generator=generator)).Q
    return tokens @ turn


def test_dimension_of_small_sphere_patch() -> None:
    """600 tokens do not show all of three dimensions, but more than two show two."""
    fits = [fit_dimension([CoveringNumbers.of(patch_of_the_sphere(d))]) for d in (1, 2, 3)]
    line, square, cube = (fit.dimension for fit in fits)
    assert line == pytest.approx(1, rel=0.2)
    assert square == pytest.approx(2, rel=0.3)
    assert square + 0.3 < cube < 3.3
    assert all(fit.error < 0.3 and fit.radii == 24 for fit in fits)


def test_sets_of_different_size_share_the_slope() -> None:
    """The fit is the same for a set, and for it beside a shifted copy of its numbers."""
    numbers = CoveringNumbers.of(torch.randn(60, 5, generator=torch.Generator().manual_seed(0)))
    one, two = fit_dimension([numbers]), fit_dimension([numbers, numbers])
    assert two.dimension == pytest.approx(one.dimension)
    assert two.error == pytest.approx(one.error)
    assert two.radii == 2 * one.radii


@pytest.mark.parametrize("tokens", [torch.ones(4, 3), torch.ones(1, 3), torch.zeros(2, 3)])
def test_one_point_has_no_dimension(tokens: Tensor) -> None:
    numbers = CoveringNumbers.of(tokens)
    assert numbers.upper(1e-9) == numbers.lower(1e-9) == 1
    assert fit_dimension([numbers]).dimension == 0.0


def test_a_radius_must_be_positive() -> None:
    numbers = CoveringNumbers.of(torch.eye(3))
    for radius in (0.0, -1.0, math.nan):
        with pytest.raises(tc.InputError, match="positive"):
            numbers.upper(radius)
    with pytest.raises(tc.InputError, match="below the smallest"):
        regularity(numbers, 1.0, 0.5, 0.4)
