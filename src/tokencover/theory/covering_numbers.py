"""How many balls a set of tokens needs, and how fast that number grows (Definition 1, Lemma 2).

N(X, r), the smallest number of balls of radius r that cover X, is hard to compute; two easy numbers
enclose it. The first j farthest points cover X at their covering radius, so N is at most j there.
And no ball of radius r holds two tokens farther apart than 2 r, so N is at least the number of
farthest points that are.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from operator import neg

from torch import Tensor

from tokencover.covering import farthest_order
from tokencover.errors import InputError

_FITTED = 24
"""Radii of each set to which the dimension is fitted."""


@dataclass(frozen=True, slots=True)
class CoveringNumbers:
    """Bounds on N(X, r) for every radius r > 0.

    Attributes
    ----------
    radius : tuple of float
        ``radius[j]`` is the covering radius of the first j farthest points; j = 0 .. |X|.
    separation : tuple of float
        ``separation[j]`` is the smallest distance between two of them.
    """

    radius: tuple[float, ...]
    separation: tuple[float, ...]

    @classmethod
    def of(cls, tokens: Tensor) -> CoveringNumbers:
        """Measure tokens ``(n, d)``; O(n**2 d)."""
        found = farthest_order(tokens, most=len(tokens))
        return cls(tuple(found.radius.tolist()), tuple(found.separation.tolist()))

    def upper(self, radius: float) -> int:
        """How many balls of this radius are enough: the greedy cover's."""
        _check_radius(radius)
        return bisect_left(self.radius, -radius, key=neg)

    def lower(self, radius: float) -> int:
        """How many balls of this radius are needed at least: tokens no two of which share one."""
        _check_radius(radius)
        return bisect_left(self.separation, -2 * radius, key=neg) - 1

    def spread_radii(self, count: int) -> tuple[float, ...]:
        """Radii at which N says something about the shape of the set, falling evenly in log r.

        From the covering radius of one centre to that of half of all distinct tokens: below, N says
        little more than how many tokens there are.
        """
        steps = [reach for reach in self.radius if 0 < reach < math.inf]
        steps = steps[: (len(steps) + 2) // 2]
        if not steps or steps[0] == steps[-1]:
            return tuple(steps[:1])
        ratio = steps[-1] / steps[0]
        inside = [steps[0] * ratio ** (place / (count - 1)) for place in range(1, count - 1)]
        return (steps[0], *inside, steps[-1])

    def largest_radius_with(self, count: int) -> float:
        """Supremum of the radii at which the lower bound is at least `count`; 0 if none is."""
        if count < 1:
            return math.inf
        return self.separation[count] / 2 if count < len(self.separation) else 0.0


@dataclass(frozen=True, slots=True)
class Regularity:
    """``lower * r**-d <= N(X, r) <= upper * r**-d`` for every r in [smallest, largest].

    The inequality is proved for this set of tokens, not fitted: the constants are the best that the
    bounds of `CoveringNumbers` allow on the whole interval, for the given d.
    """

    lower: float
    upper: float
    smallest: float
    largest: float


def regularity(
    numbers: CoveringNumbers, dimension: float, smallest: float, largest: float
) -> Regularity:
    """The constants a and b of Lemma 2 on an interval of radii.

    Both bounds on N are staircases. Between steps r**d alone grows, so the product with the lower
    bound is smallest where a step begins, and that with the upper bound largest where it ends.
    """
    _check_radius(smallest)
    if largest < smallest:
        raise InputError(f"the largest radius, {largest}, is below the smallest, {smallest}.")
    inside = [half for gap in numbers.separation if smallest < (half := gap / 2) < largest]
    begins = [smallest, *inside]
    lower = min(numbers.lower(each) * each**dimension for each in begins)
    ends = [(numbers.upper(largest), largest)]
    for count, reach in enumerate(numbers.radius):
        if smallest < reach <= largest:  # just below this radius one ball more is needed
            ends.append((count + 1, reach))
    upper = max(count * each**dimension for count, each in ends)
    return Regularity(lower, upper, smallest, largest)


@dataclass(frozen=True, slots=True)
class DimensionFit:
    """A common slope d of log N against -log r, with an intercept for each set.

    Attributes
    ----------
    dimension : float
        d_eff. 0 if no set has two different radii to fit.
    error : float
        Root mean square of what the fit leaves of log N; 0.1 is about ten per cent of N.
    radii : int
        How many radii were fitted.
    """

    dimension: float
    error: float
    radii: int


def fit_dimension(sets: Sequence[CoveringNumbers]) -> DimensionFit:
    """Fit the effective dimension to the covering numbers of several sets together.

    At each set's `CoveringNumbers.spread_radii` the greedy cover stands for N. Least squares; the
    slope is that within the sets, so that a large and a small one may have different constants.
    """
    groups = [_take_logarithms(numbers) for numbers in sets]
    spread = products = 0.0
    for group in groups:
        for log_radius, log_number in _center(group):
            spread += log_radius**2
            products -= log_radius * log_number
    count = sum(map(len, groups))
    dimension = max(0.0, products / spread) if spread > 0 else 0.0
    left = [y + dimension * x for group in groups for x, y in _center(group)]
    error = math.sqrt(sum(each**2 for each in left) / count) if count else 0.0
    return DimensionFit(dimension, error, count)


def _take_logarithms(numbers: CoveringNumbers) -> list[tuple[float, float]]:
    """(log r, log N) at the fitted radii."""
    return [
        (math.log(each), math.log(numbers.upper(each))) for each in numbers.spread_radii(_FITTED)
    ]


def _center(group: list[tuple[float, float]]) -> list[tuple[float, float]]:
    if not group:
        return []
    mean_x = sum(x for x, _ in group) / len(group)
    mean_y = sum(y for _, y in group) / len(group)
    return [(x - mean_x, y - mean_y) for x, y in group]


def _check_radius(radius: float) -> None:
    if not radius > 0:
        raise InputError(f"a ball's radius must be positive, got {radius}.")
