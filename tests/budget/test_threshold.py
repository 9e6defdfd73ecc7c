"""The threshold between two groups: exact, and honest about there being none."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokencover as tc
from tests.budget.coupling_streams import SPREAD, one_heap, two_heaps
from tokencover.budget.threshold import MINIMUM, split_groups


def slow_cut(values: list[float]) -> float:
    """Of all cuts between different neighbours, the least variance within the sides."""
    ordered = sorted(values)
    best, tau = float("inf"), float("nan")
    for low, high in pairwise(ordered):
        if low == high:
            continue
        sides = [v for v in ordered if v <= low], [v for v in ordered if v > low]
        within = sum(len(side) * statistics.pvariance(side) for side in sides)
        if within < best - 1e-12:
            best, tau = within, (low + high) / 2
    return tau


@given(st.lists(st.integers(0, 200).map(lambda n: n / 100), min_size=2, max_size=30))
def test_cut_equals_exhaustive_search(values: list[float]) -> None:
    found = split_groups(values)
    if len(set(values)) == 1:
        assert found.tau is None
        return
    assert found.tau is not None
    sides = [v for v in values if v <= found.tau], [v for v in values if v > found.tau]
    within = sum(len(side) * statistics.pvariance(side) for side in sides)
    other = slow_cut(values)
    best = [v for v in values if v <= other], [v for v in values if v > other]
    assert within <= sum(len(s) * statistics.pvariance(s) for s in best) + 1e-9
    share = 1 - within / (len(values) * statistics.pvariance(values))
    assert found.explained == pytest.approx(share, abs=1e-9)
    assert found.lower_fraction == pytest.approx(len(sides[0]) / len(values))
    assert found == split_groups(values[::-1])


@pytest.mark.parametrize("share", [0.5, 0.2, 0.1])
@pytest.mark.parametrize("seed", range(3))
def test_planted_groups_are_found(share: float, seed: int) -> None:
    found = split_groups(two_heaps(400, share=share, seed=seed))
    assert found.separated, found.objection
    assert found.tau == pytest.approx(1.375, abs=SPREAD)  # within one deviation of the middle
    assert found.lower_fraction == pytest.approx(share, abs=0.05)
    assert found.valley > 0.8


UNIMODAL: dict[str, Callable[[random.Random], float]] = {
    "normal": lambda lot: lot.gauss(1.4, 0.02),
    "uniform": lambda lot: lot.uniform(1.3, 1.5),
    "exponential": lambda lot: 1.3 + 0.02 * lot.expovariate(1),
    "lognormal": lambda lot: 1.3 + 0.02 * lot.lognormvariate(0, 0.7),
    "triangular": lambda lot: lot.triangular(1.3, 1.5, 1.35),
}


@pytest.mark.parametrize("name", UNIMODAL)
@pytest.mark.parametrize("count", [100, 1000])
def test_one_heap_is_rarely_taken_for_two(name: str, count: int) -> None:
    wrong = 0
    for seed in range(12):
        lot = random.Random(seed)
        wrong += split_groups([UNIMODAL[name](lot) for _ in range(count)]).separated
    assert wrong <= (1 if count == 100 else 0)


def test_objection_explains_missing_groups() -> None:
    assert "density falls" in split_groups(one_heap(300)).objection
    assert f"at least {MINIMUM}" in split_groups(two_heaps(MINIMUM - 1)).objection
    assert split_groups([1.2] * 80).objection == "all values are equal"
    assert "outliers" in split_groups([*one_heap(200, mean=1.1), 1.9, 1.9]).objection
    assert split_groups(two_heaps(200)).objection == ""


def test_two_values_alone_are_two_groups() -> None:
    found = split_groups([1.0] * 40 + [1.5] * 40)
    assert (found.tau, found.explained, found.separated) == (1.25, 1.0, True)
    assert found.valley > 0.9


def test_overlapping_groups_are_not_separated() -> None:
    assert not split_groups(two_heaps(2000, high=1.30 + 2 * SPREAD)).separated


def test_weights_count_as_copies() -> None:
    values, weights = [1.0, 1.1, 1.4, 1.5], [30.0, 40.0, 20.0, 10.0]
    copies = [v for v, w in zip(values, weights, strict=True) for _ in range(int(w))]
    assert split_groups(values, weights) == split_groups(copies)


@pytest.mark.parametrize(
    ("values", "weights", "message"),
    [
        ([], None, "no values"),
        ([1.0, float("nan")], None, "finite numbers, got nan"),
        ([1.0, 2.0], [1.0], "2 values but 1 weights"),
        ([1.0, 2.0], [1.0, 0.0], "above 0 and finite, got 0.0"),
    ],
)
def test_split_groups_invalid_values_raises(
    values: list[float], weights: list[float] | None, message: str
) -> None:
    with pytest.raises(tc.InputError, match=message):
        split_groups(values, weights)
