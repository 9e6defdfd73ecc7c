"""What a report says in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tokencover.evaluation.lmms import PAPER_BENCHMARKS
from tokencover.evaluation.report.paper_comparison import find_shared_benchmarks
from tokencover.evaluation.results import Results
from tokencover.evaluation.results_table import ResultsTable

SUMS: Final = ("MME", "OCR")
"""Benchmarks that the paper prints on a scale of their own."""
RANKS_NOTE: Final = (
    "The best of a budget is bold, the second underlined; what is shown alike is marked alike."
)


def describe_results(stored: Results) -> str:
    """Model, versions, settings and size of the run, in one line."""
    parts = [
        _write_pairs(stored.run[key], without=("weights", "name"))
        for key in sorted(stored.run)
        if isinstance(stored.run[key], Mapping)
    ]
    examples = max((sum(map(len, row.records.values())) for row in stored.rows), default=0)
    size = f"{_count(len(stored.groups), 'task')}, {_count(examples, 'example')}"
    return "; ".join([size, *filter(None, parts)])


def list_facts(stored: Results) -> dict[str, str]:
    """What a reader needs to know of a run: model, data, settings, versions, seeds."""
    run = stored.run
    groups = list(dict.fromkeys(stored.groups.values()))
    examples = max((sum(map(len, row.records.values())) for row in stored.rows), default=0)
    grouped = f" of {len(groups)} groups ({', '.join(groups)})" if len(groups) > 1 else ""
    told = {
        "model": f"{stored.title}, {_write_pairs(run['model'], without=('name',))}",
        "data": f"{_count(len(stored.groups), 'task')}{grouped}, {_count(examples, 'example')}: "
        f"{', '.join(stored.groups)}",
    }
    for key in sorted(run):
        if isinstance(run[key], Mapping) and key != "model":
            told[key] = _write_pairs(run[key], without=())
    told["seed"] = (
        "answers are greedy, nothing is drawn; intervals are of bootstrap draws with seed 0"
        + "".join(f"; {each}" for each in _list_seeds(stored))
    )
    return told


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _list_seeds(stored: Results) -> list[str]:
    """Methods that draw at random, with the seed of each."""
    methods = {
        row.combination.label: row.combination.method
        for row in stored.rows
        if hasattr(row.combination.method, "seed")
    }
    return [f"{label} has seed {getattr(each, 'seed', '')}" for label, each in methods.items()]


def explain_table(table: ResultsTable) -> list[str]:
    """What the columns of the comparison mean, and what stands out in it."""
    return [
        f"{note} {RANKS_NOTE}" if kind == "quality" else note for kind, note in table.notes.items()
    ]


def explain_paper(stored: Results) -> list[str]:
    """How far the paper's numbers can be compared with those of this run."""
    notes = [
        "Columns marked “paper” are printed in the MoB paper (Tables 2, 3 and 5), measured by its "
        "authors or taken by them from other papers, not by this run; those marked “here” are of "
        "this run. Budgets count as the same within one point of reduction."
    ]
    shared = find_shared_benchmarks(stored)
    if sums := [name for name in SUMS if name in shared]:
        notes.append(
            f"{' and '.join(sums)}: the paper prints sums of points, here they are percent."
        )
    notes += _tell_differences(stored)
    others = [task for task in stored.groups if task not in shared.values()]
    if others:
        notes.append(
            f"This run's Avg. is over its {len(stored.groups)} tasks, of which "
            f"{len(shared) or 'none'} {'is' if len(shared) == 1 else 'are'} named like a benchmark "
            "of the paper: compare trends, not digits."
        )
    return notes


def _tell_differences(stored: Results) -> list[str]:
    """Why numbers of the paper's benchmarks may be others here, each reason once."""
    reasons: dict[str, list[str]] = {}
    for benchmark in PAPER_BENCHMARKS:
        if benchmark.full_name in stored.sources.values():
            for reason in benchmark.differs.split("; "):
                reasons.setdefault(reason, []).append(benchmark.name)
    return [f"{', '.join(names)}: {reason}." for reason, names in reasons.items()]


def _write_pairs(found: Mapping[str, object], without: tuple[str, ...]) -> str:
    shown = [(key, value) for key, value in sorted(found.items()) if key not in without]
    return ", ".join(
        f"{key.replace('_', ' ')} {value}" for key, value in shown if value is not None
    )
