"""The result in a few sentences: the cheapest method, the best, and how certain that is.

"Significant" means that the paired 95 % interval of the difference in accuracy excludes 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tokencover.evaluation.columns import format_difference
from tokencover.evaluation.results import Results
from tokencover.evaluation.scoring import ResultRow, compute_difference, compute_relative_average
from tokencover.statistics import Interval

TARGET: Final = 95.0
"""Percent of the unpruned accuracy that a method has to keep to be recommended."""
FEWEST_CLUSTERS: Final = 10
"""Independent clusters of examples below which an interval is too uncertain to rely on."""
SIGNIFICANCE_NOTE: Final = (
    "Differences are of the mean accuracy over tasks, with paired 95 % intervals over clusters of "
    "examples. Significant means that the interval excludes 0, without a correction for the number "
    "of methods."
)
Ranked = list[tuple[float, ResultRow]]
"""Rows with their "Avg.", the best first; of equal ones the cheapest first."""


def write_verdict(stored: Results) -> list[str]:
    """Name the cheapest method that keeps `TARGET`, and how certain the ranking is.

    Nothing is said where "Avg." is not defined.
    """
    by_budget = _rank_by_budget(stored)
    ranked = [each for found in by_budget.values() for each in found]
    if not ranked:
        return []
    return [_recommend(ranked, stored.unpruned), *_count_winners(by_budget)]


def summarize_budgets(stored: Results, reference: str) -> list[str]:
    """Name the best method, the second and the reference, one sentence per budget."""
    lines = []
    for budget, ranked in _rank_by_budget(stored).items():
        best = ranked[0]
        text = f"Budget {budget}: {_name_best(ranked)}"
        own = next((each for each in ranked if each[1].combination.goes_by(reference)), best)
        if own is not best:
            text += f"; {own[1].combination.label} keeps {_describe_average(*own)}"
            text += f" ({_compute_difference(own[1], best[1])})"
        lines.append(f"{text}.")
    return lines


def _rank_by_budget(stored: Results) -> dict[str, Ranked]:
    ranked: dict[str, Ranked] = {}
    for row in stored.rows:
        average = compute_relative_average(row, stored.unpruned)
        if row.combination.method is not None and average is not None:
            ranked.setdefault(row.combination.budget, []).append((average, row))
    return {
        budget: sorted(found, key=lambda each: (-each[0], _get_cost(each[1])))
        for budget, found in ranked.items()
    }


def _recommend(ranked: Ranked, unpruned: ResultRow | None) -> str:
    """The cheapest method that keeps enough, and its difference to the unpruned model."""
    enough = [each for each in ranked if each[0] >= TARGET]
    if not enough:
        average, row = max(ranked, key=lambda each: each[0])
        return (
            f"No method keeps {TARGET:g} % of the unpruned accuracy; the closest is "
            f"{_name(row)} with {_describe_average(average, row)}."
        )
    average, row = min(enough, key=lambda each: (_get_cost(each[1]), -each[0]))
    return (
        f"The cheapest method that keeps {TARGET:g} % of the unpruned accuracy is {_name(row)}: "
        f"{_describe_average(average, row)}; its difference to the unpruned model is "
        f"{_compute_difference(row, unpruned)}."
    )


def _count_winners(by_budget: dict[str, Ranked]) -> list[str]:
    """At how many budgets the best is distinguishable from the second."""
    contests = [ranked for ranked in by_budget.values() if ranked[1:]]
    if not contests:
        return []
    clear = sum(_is_clear(ranked) for ranked in contests)
    if len(contests) == 1:
        word = "" if clear else "not "
        return [f"The best method is {word}significantly better than the second."]
    return [
        "The best method is significantly better than the second at "
        f"{clear or 'none'} of {len(contests)} budgets."
    ]


def _is_clear(ranked: Ranked) -> bool:
    difference = _compute_difference(ranked[0][1], ranked[1][1])
    is_better = difference.interval is not None and difference.interval.mean > 0
    return is_better and difference.is_significant


def _name_best(ranked: Ranked) -> str:
    average, best = ranked[0]
    if not ranked[1:]:
        return f"{best.combination.label} keeps {_describe_average(average, best)}"
    word = "" if _is_clear(ranked) else "not "
    return (
        f"{best.combination.label} is the best of {len(ranked)} methods with "
        f"{_describe_average(average, best)}, {word}significantly better than "
        f"{ranked[1][1].combination.label}"
    )


def _get_cost(row: ResultRow) -> float:
    """Prefill FLOPs; infinite if unknown."""
    flops = None if row.summary is None else row.summary.flops
    return float("inf") if flops is None else flops


def _name(row: ResultRow) -> str:
    return f"{row.combination.label} at budget {row.combination.budget}"


def _describe_average(average: float, row: ResultRow) -> str:
    flops = _get_cost(row)
    cost = "" if flops == float("inf") else f" at {100 * flops:.0f} % of the FLOPs"
    return f"{average:.1f} % of the accuracy{cost}"


@dataclass(frozen=True)
class _Difference:
    """Accuracy of one row minus that of another, from so many independent clusters of examples."""

    interval: Interval | None
    clusters: int

    @property
    def is_significant(self) -> bool:
        if self.interval is None or self.clusters < FEWEST_CLUSTERS:
            return False
        return not self.interval.low <= 0 <= self.interval.high

    def __str__(self) -> str:
        if self.interval is None:
            return "not known"
        mean, interval = format_difference(self.interval).split(" ", 1)
        word = "significant" if self.is_significant else "not significant"
        if self.clusters < FEWEST_CLUSTERS:
            word += f": only {self.clusters} clusters of examples"
        return f"{mean} points {interval}, {word}"


def _compute_difference(row: ResultRow, other: ResultRow | None) -> _Difference:
    clusters = {each.cluster for records in row.records.values() for each in records}
    return _Difference(compute_difference(row, other), len(clusters))
