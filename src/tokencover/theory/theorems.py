"""What Theorems 1 and 2 of the paper claim about a cover, beside what is so.

Neither is a guarantee. Theorem 1 takes a bound on the *product* of two radii from "at least one of
them is large"; Theorem 2 uses b * eps_p**-d >= Kp, which does not follow from the covering numbers,
and a guarantee of farthest point sampling that the paper's own start from S_p takes away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tokencover.theory.covering_numbers import CoveringNumbers, Regularity

_ROUNDING = 1 + 1e-9
"""Inequalities that are equalities on some data must not fail by the last digit."""


@dataclass(frozen=True, slots=True)
class CoveringShape:
    """What Lemma 2 says about both sets.

    Attributes
    ----------
    dimension : float
        d_eff > 0.
    prompt, visual : Regularity
        With a, b of P and a', b' of V.
    """

    dimension: float
    prompt: Regularity
    visual: Regularity


@dataclass(frozen=True, slots=True)
class Cut:
    """The cover the theorems speak of.

    Attributes
    ----------
    prompt_budget, visual_budget : int
        Kp and Kv, both at least 1.
    prompt_radius, visual_radius : float
        eps_p and eps_v, both positive.
    coupling : float
        eta.
    pruned : float
        d_H(V + P, S + P).
    """

    prompt_budget: int
    visual_budget: int
    prompt_radius: float
    visual_radius: float
    coupling: float
    pruned: float

    @property
    def budget(self) -> int:
        """K."""
        return self.prompt_budget + self.visual_budget


@dataclass(frozen=True, slots=True)
class Theorem1:
    """``eps_p * eps_v >= max(D1 * K**(-2/d), D2 * eta**2)``, claimed.

    Attributes
    ----------
    product : float
        eps_p * eps_v.
    budget_term : float
        D1 * K**(-2/d) with D1 = (4 a a')**(1/d).
    smallest_radius : float
        eta / z for the smallest z > 1 that is certain to meet the theorem's condition K < N(P,
        eta/z) + N(V, eta/z): a supremum. 0 if no z is certain to.
    larger_radius : float
        max(eps_p, eps_v). That this is at least `smallest_radius` is all that the proof shows.
    best_radius : float
        eps*, the "optimal attainment level": max(eta / z, sqrt(D1) * K**(-1/d)).
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
        """Whether the product is at least the coupling's term; this part need not be so."""
        return self.product * _ROUNDING >= self.coupling_term

    @property
    def holds(self) -> bool:
        """Whether the inequality held on this data."""
        return self.budget_holds and self.coupling_holds


@dataclass(frozen=True, slots=True)
class Theorem2:
    """``d_H(X, X_s) <= max(alpha * Kp**(-1/d), beta * Kv**(-1/d)) + eta``, claimed.

    Attributes
    ----------
    alpha : float
        eta * (b k L / a)**(1/d).
    beta : float
        2 * b'**(1/d).
    prompt_bound, visual_bound : float
        alpha * Kp**(-1/d) and beta * Kv**(-1/d), which should bound eps_p and eps_v.
    bound : float
        The larger of the two, plus eta.
    prompt_holds, visual_holds : bool
        Whether they do.
    step_holds : bool
        Whether b * eps_p**-d >= Kp, from which the proof takes the bound on eps_p.
    holds : bool
        Whether the distance between all tokens and the kept ones is within `bound`.
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
    cut: Cut, shape: CoveringShape, prompt: CoveringNumbers, visual: CoveringNumbers
) -> Theorem1:
    """Compare a cover with Theorem 1; covering numbers are those of P and V."""
    constant = _raise(4 * shape.prompt.lower * shape.visual.lower, 1 / shape.dimension)
    budget_term = constant * _raise(cut.budget, -2 / shape.dimension)
    smallest = min(cut.coupling, _find_largest_crowded_radius(prompt, visual, cut.budget))
    return Theorem1(
        product=cut.prompt_radius * cut.visual_radius,
        budget_term=budget_term,
        smallest_radius=smallest,
        larger_radius=max(cut.prompt_radius, cut.visual_radius),
        best_radius=max(smallest, math.sqrt(budget_term)),
    )


def _find_largest_crowded_radius(
    prompt: CoveringNumbers, visual: CoveringNumbers, budget: int
) -> float:
    """Supremum of the radii at which P and V together are sure to need more than K balls."""
    return max(
        min(prompt.largest_radius_with(part), visual.largest_radius_with(budget + 1 - part))
        for part in range(1, budget + 1)
    )


def theorem2(cut: Cut, shape: CoveringShape, candidates: int) -> Theorem2:
    """Compare a cover with Theorem 2; `candidates` is k * L."""
    power = 1 / shape.dimension
    spread = shape.prompt.upper * candidates / shape.prompt.lower
    alpha = cut.coupling * _raise(spread, power) if cut.coupling > 0 else 0.0
    beta = 2 * _raise(shape.visual.upper, power)
    prompt_bound = alpha * _raise(cut.prompt_budget, -power)
    visual_bound = beta * _raise(cut.visual_budget, -power)
    bound = max(prompt_bound, visual_bound) + cut.coupling
    enough = shape.prompt.upper * _raise(cut.prompt_radius, -shape.dimension)
    return Theorem2(
        alpha=alpha,
        beta=beta,
        prompt_bound=prompt_bound,
        visual_bound=visual_bound,
        bound=bound,
        prompt_holds=cut.prompt_radius <= prompt_bound * _ROUNDING,
        visual_holds=cut.visual_radius <= visual_bound * _ROUNDING,
        step_holds=enough * _ROUNDING >= cut.prompt_budget,
        holds=cut.pruned <= bound * _ROUNDING,
    )


def _raise(base: float, exponent: float) -> float:
    """``base ** exponent``, infinite where a small dimension makes it too large for a float."""
    try:
        return float(base**exponent)
    except OverflowError:
        return math.inf
