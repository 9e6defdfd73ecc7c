"""Exact arithmetic that must not depend on a machine's vector library."""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokencover.covering.exact import square_root

LENGTHS = st.integers(1, 2**49)


def nearest_root(value: float) -> float:
    """The float64 nearest to the root, from integers alone."""
    exact = Fraction(math.isqrt(int(value) << 140), 1 << 70)
    guess = float(exact)
    candidates = math.nextafter(guess, 0.0), guess, math.nextafter(guess, math.inf)
    return min(candidates, key=lambda each: abs(Fraction(each) - exact))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(LENGTHS, LENGTHS), min_size=1, max_size=40))
def test_roots_are_rounded_to_nearest(pairs: list[tuple[int, int]]) -> None:
    values = [float(first) * float(second) for first, second in pairs]
    found = square_root(torch.tensor(values, dtype=torch.float64)).tolist()
    assert found == [nearest_root(value) for value in values]


@given(st.lists(LENGTHS, min_size=1, max_size=40))
def test_square_root_of_square_exact(lengths: list[int]) -> None:
    numbers = torch.tensor(lengths, dtype=torch.float64)
    assert torch.equal(square_root(numbers * numbers), numbers)
