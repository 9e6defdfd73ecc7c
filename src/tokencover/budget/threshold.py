"""The threshold tau that divides coupling values into two groups, and whether there are two.

tau is Otsu's: of all cuts between neighboring values, the one that leaves the least variance
within the two sides. Every set of values has such a cut, also one with a single mode, so a second
number shows whether it means anything: the depth of the valley. The density of the values is
smoothed with a normal kernel of Silverman's width, 0.9 * deviation * count**-0.2. The valley's
depth is how far the density falls between the highest peaks of the two sides, as a fraction of the
lower peak: 0 if the cut runs through one mode, 1 if there is nothing between two.

The fraction of variance explained cannot decide: a single normal distribution cut in the middle
already has 64 %, a uniform one 75 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from tokencover.errors import InputError

VALLEY: Final = 0.4
"""Least depth of the valley of separated groups. Two equal normal groups have it when their means
are about 3.1 deviations apart; 6 % of the values are then on the wrong side. Smoothing fills
valleys, so fewer samples need groups that are farther apart."""
SMALLER_GROUP: Final = 0.05
"""Least fraction of the smaller group: fewer values are outliers."""
MINIMUM: Final = 50
"""Fewest samples that can show two groups; with fewer, one mode often looks like two."""
_CELLS: Final = 256


@dataclass(frozen=True, slots=True)
class Groups:
    """Values cut in two: up to tau is the lower group; tau is None if all values are equal."""

    tau: float | None
    lower_fraction: float
    """Of the values, in the lower group."""
    explained: float
    """Fraction of the variance between the groups' means."""
    valley: float
    """Depth of the valley between the groups, 0 to 1."""
    count: float
    """Number of samples; not an integer if old ones count less."""

    @property
    def separated(self) -> bool:
        """Whether the values are two groups rather than one."""
        return not self.objection

    @property
    def objection(self) -> str:
        """Why the values are not two groups; empty if they are."""
        smaller = min(self.lower_fraction, 1 - self.lower_fraction)
        if self.count < MINIMUM:
            return f"there are {self.count:.0f} samples, too few to judge: use at least {MINIMUM}"
        if self.tau is None:
            return "all values are equal"
        if smaller < SMALLER_GROUP:
            return (
                f"the smaller group has {smaller:.1%} of the samples, less than "
                f"{SMALLER_GROUP:.0%}: outliers, not a group"
            )
        if self.valley < VALLEY:
            return (
                f"the density falls by {self.valley:.0%} between the groups, less than {VALLEY:.0%}"
            )
        return ""


def split_groups(
    values: Sequence[float], weights: Sequence[float] | None = None, *, count: float | None = None
) -> Groups:
    """Cut values in two, in any order.

    Of two equally good cuts the lower one is used; tau is the mean of the values next to it.

    Parameters
    ----------
    values : sequence of float
        At least one, finite.
    weights : sequence of float, optional
        How much each value counts, above 0; by default 1.
    count : float, optional
        The number of samples; by default the sum of the weights.
    """
    points, masses = _merge_equal(values, [1.0] * len(values) if weights is None else weights)
    total = math.fsum(masses)
    count = total if count is None else count
    if len(points) == 1:
        return Groups(None, 1.0, 0.0, 0.0, count)
    mean = math.fsum(p * m for p, m in zip(points, masses, strict=True)) / total
    variance = math.fsum(m * (p - mean) ** 2 for p, m in zip(points, masses, strict=True)) / total
    cut, lower, between = _select_cut(points, masses, mean)
    tau = (points[cut] + points[cut + 1]) / 2
    if variance == 0:  # values so close that their squared differences vanish
        return Groups(None, 1.0, 0.0, 0.0, count)
    width = 0.9 * math.sqrt(variance) * max(count, 1.0) ** -0.2
    valley = _measure_valley(points, masses, tau, width)
    return Groups(tau, lower / total, min(1.0, between / variance), valley, count)


def _merge_equal(
    values: Sequence[float], weights: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Distinct values, ascending, with the weight of each."""
    if not len(values):
        raise InputError("there are no values to cut in two groups: measure some first.")
    if len(values) != len(weights):
        raise InputError(
            f"there are {len(values)} values but {len(weights)} weights: give as many."
        )
    if bad := [value for value in values if not math.isfinite(value)]:
        raise InputError(f"values must be finite numbers, got {bad[0]}.")
    if bad := [weight for weight in weights if not 0 < weight < math.inf]:
        raise InputError(f"weights must be above 0 and finite, got {bad[0]}.")
    points: list[float] = []
    masses: list[float] = []
    for value, weight in sorted(zip(values, weights, strict=True)):
        if points and points[-1] == value:
            masses[-1] += weight
        else:
            points.append(float(value))
            masses.append(float(weight))
    return points, masses


def _select_cut(points: list[float], masses: list[float], mean: float) -> tuple[int, float, float]:
    """Last index of the lower side, its mass, and the variance between the sides' means."""
    below = list(accumulate(masses))
    moments = accumulate(m * (p - mean) for p, m in zip(points, masses, strict=True))
    total = below[-1]
    scores = [
        moment * moment / (mass * (total - mass))
        for mass, moment in zip(below[:-1], moments, strict=False)
    ]
    cut = max(range(len(scores)), key=scores.__getitem__)
    return cut, below[cut], scores[cut]


def _measure_valley(points: list[float], masses: list[float], tau: float, width: float) -> float:
    """How far the smoothed density falls between the peaks on both sides of tau."""
    start, step = points[0], (points[-1] - points[0]) / (_CELLS - 1)
    cells = [0.0] * _CELLS
    for point, mass in zip(points, masses, strict=True):
        cells[min(_CELLS - 1, round((point - start) / step))] += mass
    density = _smooth(cells, width / step)
    first_above = min(_CELLS - 1, math.floor((tau - start) / step) + 1)
    low = max(range(first_above), key=density.__getitem__)
    high = max(range(first_above, _CELLS), key=density.__getitem__)
    return 1 - min(density[low : high + 1]) / min(density[low], density[high])


def _smooth(cells: list[float], width: float) -> list[float]:
    """Every cell's mass spread by a normal kernel, cut off at four widths."""
    reach = math.ceil(4 * width)
    kernel = [math.exp(-0.5 * (away / width) ** 2) for away in range(reach + 1)]
    density = [0.0] * len(cells)
    for cell, mass in enumerate(cells):
        if mass > 0:
            for other in range(max(0, cell - reach), min(len(cells), cell + reach + 1)):
                density[other] += mass * kernel[abs(other - cell)]
    return density
