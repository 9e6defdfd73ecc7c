"""Covering numbers of a set of tokens, and Theorems 1 and 2 beside what is true.

N(X, r), the smallest number of balls of radius r that cover X, is hard to compute, so two easy
numbers enclose it. The first j farthest points cover X at their covering radius: N is at most j. No
ball of radius r holds two tokens farther apart than 2 r: N is at least their number.

Neither theorem is a guarantee. Theorem 1 takes a bound on the *product* of two radii from "at least
one of them is large". Theorem 2 uses b * eps_p**-d >= Kp, which does not follow from the covering
numbers, and a guarantee of farthest point sampling that the paper's start from S_p takes away.
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
        """Return how many balls of this radius are enough, by the greedy cover."""
        _check_radius(radius)
        return bisect_left(self.radius, -radius, key=neg)

    def lower(self, radius: float) -> int:
        """Return how many balls of this radius are needed at least: tokens that share none."""
        _check_radius(radius)
        return bisect_left(self.separation, -2 * radius, key=neg) - 1

    def spread_radii(self, count: int) -> tuple[float, ...]:
        """Return radii, evenly spaced in log r, at which N describes the shape of the set.

        They range from the covering radius of one center to that of half of all distinct tokens:
        below, N is close to the number of tokens.
        """
        steps = [reach for reach in self.radius if 0 < reach < math.inf]
        steps = steps[: (len(steps) + 2) // 2]
        if not steps or steps[0] == steps[-1]:
            return tuple(steps[:1])
        ratio = steps[-1] / steps[0]
        inside = [steps[0] * ratio ** (place / (count - 1)) for place in range(1, count - 1)]
        return (steps[0], *inside, steps[-1])

    def largest_radius_with(self, count: int) -> float:
        """Return the supremum of radii whose lower bound is at least `count`, or 0."""
        if count < 1:
            return math.inf
        return self.separation[count] / 2 if count < len(self.separation) else 0.0


@dataclass(frozen=True, slots=True)
class Regularity:
    """``lower * r**-d <= N(X, r) <= upper * r**-d`` for every r in [smallest, largest].

    This is proved for the set of tokens, not fitted: the constants are the best that the bounds of
    `CoveringNumbers` allow on the interval, for the given d.
    """

    lower: float
    upper: float
    smallest: float
    largest: float


def regularity(
    numbers: CoveringNumbers, dimension: float, smallest: float, largest: float
) -> Regularity:
    """Compute the constants a and b of Lemma 2 on an interval of radii.

    Both bounds on N are staircases. Between steps only r**d grows, so the product with the lower
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
        if smallest < reach <= largest:  # just below this radius one more ball is needed
            ends.append((count + 1, reach))
    upper = max(count * each**dimension for count, each in ends)
    return Regularity(lower, upper, smallest, largest)


@dataclass(frozen=True, slots=True)
class DimensionFit:
    """A common slope d of log N against -log r, with an intercept for each set.

    `dimension` is d_eff, 0 if no set has two different radii. `error` is the root mean square
    residual of log N; 0.1 is about ten per cent of N. `radii` counts the fitted radii.
    """

    dimension: float
    error: float
    radii: int


def fit_dimension(sets: Sequence[CoveringNumbers]) -> DimensionFit:
    """Fit the effective dimension to the covering numbers of several sets together.

    At the radii of `CoveringNumbers.spread_radii`, least squares use the greedy cover for N. The
    slope is that within the sets, so a large and a small set may have different constants.
    """
    groups = [
        [(math.log(each), math.log(own.upper(each))) for each in own.spread_radii(_FITTED)]
        for own in sets
    ]
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


def _center(group: list[tuple[float, float]]) -> list[tuple[float, float]]:
    if not group:
        return []
    mean_x = sum(x for x, _ in group) / len(group)
    mean_y = sum(y for _, y in group) / len(group)
    return [(x - mean_x, y - mean_y) for x, y in group]


def _check_radius(radius: float) -> None:
    if not radius > 0:
        raise InputError(f"a ball's radius must be positive, got {radius}.")


_ROUNDING = 1 + 1e-9
"""Inequalities that are equalities on some data must not fail by the last digit."""


@dataclass(frozen=True, slots=True)
class CoveringShape:
    """What Lemma 2 says about both sets: d_eff > 0, and the constants of P and V."""

    dimension: float
    prompt: Regularity
    visual: Regularity


@dataclass(frozen=True, slots=True)
class Distances:
    """The Hausdorff distances of V, P, S = S_p + S_v, and of all tokens before and after pruning.

    `coupling` is eta = d_H(V, P), `prompt_radius` eps_p = d_H(S_p, P), `visual_radius` eps_v =
    d_H(S_v, V); a radius is infinite without centers. `pruned` is d_H(V + P, S + P), which both
    lemmas bound. S is a part of V, so `pruned` is at most eta: a larger bound says nothing.
    """

    coupling: float
    prompt_radius: float
    visual_radius: float
    kept_to_prompt: float
    kept_to_visual: float
    pruned: float

    @property
    def lemma1(self) -> float:
        """max(min(d_H(S, V), eta), min(d_H(S, V), d_H(S, P))), at least `pruned`."""
        return min(self.kept_to_visual, max(self.coupling, self.kept_to_prompt))

    @property
    def relaxed(self) -> float:
        """max(eps_p, eps_v) + eta, at least `lemma1`."""
        return max(self.prompt_radius, self.visual_radius) + self.coupling


@dataclass(frozen=True, slots=True)
class Theorem1:
    """``eps_p * eps_v >= max(D1 * K**(-2/d), D2 * eta**2)``, claimed.

    `budget_term` is D1 * K**(-2/d) with D1 = (4 a a')**(1/d). `smallest_radius` is eta / z for the
    smallest z > 1 that is certain to meet the condition K < N(P, eta/z) + N(V, eta/z): a supremum,
    0 if no z is certain to. `larger_radius` is max(eps_p, eps_v); the proof shows only that this is
    at least `smallest_radius`. `best_radius` is eps*: max(eta / z, sqrt(D1) * K**(-1/d)).
    """

    product: float
    budget_term: float
    smallest_radius: float
    larger_radius: float
    best_radius: float

    @property
    def coupling_term(self) -> float:
        """D2 * eta**2, that is, (eta / z)**2."""
        return self.smallest_radius**2

    @property
    def budget_holds(self) -> bool:
        """Whether the product is at least the budget's term; this part is proved."""
        return self.product * _ROUNDING >= self.budget_term

    @property
    def coupling_holds(self) -> bool:
        """Whether the product is at least the coupling's term; this part is not proved."""
        return self.product * _ROUNDING >= self.coupling_term

    @property
    def holds(self) -> bool:
        """Whether the inequality held on this data."""
        return self.budget_holds and self.coupling_holds


@dataclass(frozen=True, slots=True)
class Theorem2:
    """``d_H(X, X_s) <= max(alpha * Kp**(-1/d), beta * Kv**(-1/d)) + eta``, claimed.

    `alpha` is eta * (b k L / a)**(1/d), `beta` 2 * b'**(1/d). `prompt_bound` and `visual_bound` are
    alpha * Kp**(-1/d) and beta * Kv**(-1/d), which should bound eps_p and eps_v. `step_holds` is
    whether b * eps_p**-d >= Kp, from which the proof takes the bound on eps_p.
    """

    alpha: float
    beta: float
    prompt_bound: float
    visual_bound: float
    bound: float
    prompt_holds: bool
    visual_holds: bool
    step_holds: bool
    holds: bool


def theorem1(
    budget: int,
    distances: Distances,
    shape: CoveringShape,
    prompt: CoveringNumbers,
    visual: CoveringNumbers,
) -> Theorem1:
    """Compare a cover with Theorem 1; `budget` is K, covering numbers are those of P and V."""
    constant = _raise(4 * shape.prompt.lower * shape.visual.lower, 1 / shape.dimension)
    budget_term = constant * _raise(budget, -2 / shape.dimension)
    smallest = min(distances.coupling, _compute_crowded_radius(prompt, visual, budget))
    return Theorem1(
        product=distances.prompt_radius * distances.visual_radius,
        budget_term=budget_term,
        smallest_radius=smallest,
        larger_radius=max(distances.prompt_radius, distances.visual_radius),
        best_radius=max(smallest, math.sqrt(budget_term)),
    )


def _compute_crowded_radius(prompt: CoveringNumbers, visual: CoveringNumbers, budget: int) -> float:
    """Supremum of the radii at which P and V together certainly need more than K balls."""
    return max(
        min(prompt.largest_radius_with(part), visual.largest_radius_with(budget + 1 - part))
        for part in range(1, budget + 1)
    )


def theorem2(
    prompt_budget: int,
    visual_budget: int,
    distances: Distances,
    shape: CoveringShape,
    candidates: int,
) -> Theorem2:
    """Compare a cover with Theorem 2; `candidates` is k * L."""
    power = 1 / shape.dimension
    spread = shape.prompt.upper * candidates / shape.prompt.lower
    alpha = distances.coupling * _raise(spread, power) if distances.coupling > 0 else 0.0
    beta = 2 * _raise(shape.visual.upper, power)
    prompt_bound = alpha * _raise(prompt_budget, -power)
    visual_bound = beta * _raise(visual_budget, -power)
    bound = max(prompt_bound, visual_bound) + distances.coupling
    enough = shape.prompt.upper * _raise(distances.prompt_radius, -shape.dimension)
    return Theorem2(
        alpha=alpha,
        beta=beta,
        prompt_bound=prompt_bound,
        visual_bound=visual_bound,
        bound=bound,
        prompt_holds=distances.prompt_radius <= prompt_bound * _ROUNDING,
        visual_holds=distances.visual_radius <= visual_bound * _ROUNDING,
        step_holds=enough * _ROUNDING >= prompt_budget,
        holds=distances.pruned <= bound * _ROUNDING,
    )


def _raise(base: float, exponent: float) -> float:
    """``base ** exponent``, infinite where a small dimension makes it too large for a float."""
    try:
        return float(base**exponent)
    except OverflowError:
        return math.inf
