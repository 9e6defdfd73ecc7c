"""The report as Markdown, and the sentences of reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tokencover.evaluation.columns import ResultsTable
from tokencover.evaluation.formats import as_markdown
from tokencover.evaluation.lmms import PAPER_BENCHMARKS
from tokencover.evaluation.report.paper_comparison import (
    compare_with_paper,
    get_paper_model,
    list_shared_benchmarks,
)
from tokencover.evaluation.report.verdict import write_verdict
from tokencover.evaluation.results import Results
from tokencover.evaluation.scoring import list_missing, list_warnings
from tokencover.tables import escape_markdown, write_markdown

SUMS: Final = ("MME", "OCR")
"""Benchmarks that the paper prints as sums of points."""
RANKS_NOTE: Final = (
    "The best of a budget is bold, the second underlined; what is shown alike is marked alike."
)


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
    names = ["Avg. %", *found[0].scores]
    header = ["method", "dropped %"]
    header += [f"{escape_markdown(name)} ({who})" for name in names for who in ("paper", "here")]
    rows = []
    for each in sorted(found, key=lambda each: each.paper.reduction):
        numbers = [text for pair in each.pairs for text in pair]
        rows.append([escape_markdown(each.name), f"{each.paper.reduction:g}", *numbers])
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
            facts[key] = _write_pairs(run[key], without=())
    facts["seed"] = (
        "answers are greedy, nothing is drawn; intervals are of bootstrap draws with seed 0"
        + "".join(f"; {each}" for each in _list_seeds(stored))
    )
    return facts


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _list_seeds(stored: Results) -> list[str]:
    """Methods with a seed."""
    methods = {
        row.combination.label: row.combination.method
        for row in stored.rows
        if hasattr(row.combination.method, "seed")
    }
    return [f"{label} has seed {getattr(each, 'seed', '')}" for label, each in methods.items()]


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


def _write_pairs(found: Mapping[str, object], without: tuple[str, ...]) -> str:
    shown = [(key, value) for key, value in sorted(found.items()) if key not in without]
    return ", ".join(
        f"{key.replace('_', ' ')} {value}" for key, value in shown if value is not None
    )
