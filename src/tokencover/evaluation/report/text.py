"""The sentences of reports, and the report as Markdown.

"Significant" means that the paired 95 % interval of the difference in accuracy excludes 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from tokencover.evaluation.columns import ResultsTable, format_difference
from tokencover.evaluation.formats import as_markdown
from tokencover.evaluation.lmms import PAPER_BENCHMARKS
from tokencover.evaluation.report.paper_comparison import (
    compare_with_paper,
    get_paper_model,
    list_headings,
    list_shared_benchmarks,
)
from tokencover.evaluation.results import Results
from tokencover.evaluation.scoring import (
    ResultRow,
    compute_difference,
    compute_relative_average,
    list_missing,
    list_warnings,
)
from tokencover.statistics import Interval
from tokencover.tables import escape_markdown, write_markdown

SUMS: Final = ("MME", "OCR")
"""Benchmarks that the paper prints as sums of points."""
RANKS_NOTE: Final = (
    "The best of a budget is bold, the second underlined; what is shown alike is marked alike."
)
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


def make_markdown(stored: Results, reference: str = "mob") -> str:
    """Return the comparison with its notes, and the paper's numbers if there are any."""
    table = stored.compare(reference)
    parts = [
        f"# Pruning visual tokens of {escape_markdown(stored.title)}",
        *(f"**Warning.** {escape_markdown(each)}" for each in list_warnings(stored.rows)),
        *filter(None, [escape_markdown(" ".join(write_verdict(stored)))]),
        escape_markdown(describe_results(stored)),
        as_markdown(table),
        *map(escape_markdown, [*explain_table(table), *list_missing(stored.rows)]),
        *_write_paper(stored),
    ]
    return "\n\n".join(parts) + "\n"


def _write_paper(stored: Results) -> list[str]:
    found = compare_with_paper(stored)
    if not found:
        return []
    header = ["method", "dropped %", *map(escape_markdown, list_headings(found))]
    rows = [
        [escape_markdown(each.name), f"{each.paper.reduction:g}", *chain(*each.pairs)]
        for each in found
    ]
    title = f"## The paper's numbers for {get_paper_model(stored.model)}"
    return [title, *map(escape_markdown, explain_paper(stored)), write_markdown(header, rows)]


def describe_results(stored: Results) -> str:
    """Describe model, versions, settings and size of the run in one line."""
    parts = [
        _write_pairs(stored.run[key], without=("weights", "name"))
        for key in sorted(stored.run)
        if isinstance(stored.run[key], Mapping)
    ]
    examples = max((sum(map(len, row.records.values())) for row in stored.rows), default=0)
    size = f"{_count(len(stored.groups), 'task')}, {_count(examples, 'example')}"
    return "; ".join([size, *filter(None, parts)])


def list_facts(stored: Results) -> dict[str, str]:
    """List model, data, settings, versions and seeds of a run."""
    run = stored.run
    groups = list(dict.fromkeys(stored.groups.values()))
    examples = max((sum(map(len, row.records.values())) for row in stored.rows), default=0)
    grouped = f" of {len(groups)} groups ({', '.join(groups)})" if len(groups) > 1 else ""
    facts = {
        "model": f"{stored.title}, {_write_pairs(run['model'], without=('name',))}",
        "data": f"{_count(len(stored.groups), 'task')}{grouped}, {_count(examples, 'example')}: "
        f"{', '.join(stored.groups)}",
    }
    for key in sorted(run):
        if isinstance(run[key], Mapping) and key != "model":
            facts[key] = _write_pairs(run[key])
    seeds = {
        f"; {row.combination.label} has seed {getattr(row.combination.method, 'seed', '')}": None
        for row in stored.rows
        if hasattr(row.combination.method, "seed")
    }
    facts["seed"] = (
        "answers are greedy, nothing is drawn; intervals are of bootstrap draws with seed 0"
        + "".join(seeds)
    )
    return facts


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def explain_table(table: ResultsTable) -> list[str]:
    """Say what the columns and the ranks of the comparison mean."""
    return [
        f"{note} {RANKS_NOTE}" if kind == "quality" else note for kind, note in table.notes.items()
    ]


def explain_paper(stored: Results) -> list[str]:
    """Say how far the paper's numbers and those of this run are comparable."""
    notes = [
        "Columns marked “paper” are printed in the MoB paper (Tables 2, 3 and 5), measured by its "
        "authors or taken by them from other papers, not by this run; those marked “here” are of "
        "this run. Budgets count as the same within one point of reduction."
    ]
    shared = list_shared_benchmarks(stored)
    if sums := [name for name in SUMS if name in shared]:
        notes.append(
            f"{' and '.join(sums)}: the paper prints sums of points, here they are percent."
        )
    notes += _list_differences(stored)
    others = [task for task in stored.groups if task not in shared.values()]
    if others:
        notes.append(
            f"This run's Avg. is over its {len(stored.groups)} tasks, of which "
            f"{len(shared) or 'none'} {'is' if len(shared) == 1 else 'are'} named like a benchmark "
            "of the paper: compare trends, not digits."
        )
    return notes


def _list_differences(stored: Results) -> list[str]:
    """Why scores may differ from the paper's, each reason once."""
    reasons: dict[str, list[str]] = {}
    for benchmark in PAPER_BENCHMARKS:
        if benchmark.full_name in stored.sources.values():
            for reason in benchmark.differs.split("; "):
                reasons.setdefault(reason, []).append(benchmark.name)
    return [f"{', '.join(names)}: {reason}." for reason, names in reasons.items()]


def _write_pairs(found: Mapping[str, object], without: tuple[str, ...] = ()) -> str:
    shown = [(key, value) for key, value in sorted(found.items()) if key not in without]
    return ", ".join(
        f"{key.replace('_', ' ')} {value}" for key, value in shown if value is not None
    )


# ---- the verdict ----------------------------------------------------------------------------


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
