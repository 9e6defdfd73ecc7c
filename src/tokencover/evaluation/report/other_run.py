"""Two runs side by side: the same methods, asked the same questions, by two models or versions."""

from __future__ import annotations

from dataclasses import dataclass

from tokencover.errors import InputError
from tokencover.evaluation.report.answer_changes import find_changes
from tokencover.evaluation.report.notes import describe_results
from tokencover.evaluation.result_rows import ResultRow
from tokencover.evaluation.results import Results
from tokencover.evaluation.results_table import NOTHING, find_difference, format_percent
from tokencover.statistics import find_mean_score


@dataclass(frozen=True, slots=True)
class OtherRun:
    """A table that compares two runs.

    Attributes
    ----------
    facts : str
        What the other run was.
    header : tuple of str
        Of the table.
    lines : list of list of str
        Its cells.
    """

    facts: str
    header: tuple[str, ...]
    lines: list[list[str]]


def compare_runs(stored: Results, other: Results) -> OtherRun:
    """Compare every method that both have finished, on the tasks that both have.

    Raises
    ------
    InputError
        If they have no task, or no method, in common.
    """
    tasks = [task for task in stored.groups if task in other.groups]
    if not tasks:
        raise InputError(
            f"the two runs have no task in common: one has {', '.join(stored.groups)}, the other "
            f"{', '.join(other.groups)}."
        )
    theirs = {(row.combination.label, row.combination.budget): row for row in other.rows}
    pairs = [
        (row, theirs[key])
        for row in stored.rows
        if (key := (row.combination.label, row.combination.budget)) in theirs
        and row.summary
        and theirs[key].summary
    ]
    if not pairs:
        raise InputError("the two runs have no finished method at the same budget in common.")
    header = ("method", "budget", "here %", "there %", "difference [95 %]", "lost", "won")
    lines = [_make_line(_take(mine, tasks), _take(their, tasks)) for mine, their in pairs]
    return OtherRun(describe_results(other), header, lines)


def _take(row: ResultRow, tasks: list[str]) -> ResultRow:
    """The row with some of its tasks."""
    records = {task: row.records[task] for task in tasks}
    return ResultRow(row.combination, records, row.summary, row.first_token, row.cannot)


def _make_line(mine: ResultRow, their: ResultRow) -> list[str]:
    means = [find_mean_score(list(row.records.values())) for row in (mine, their)]
    shown = [NOTHING if mean is None else format_percent(mean.mean) for mean in means]
    difference = NOTHING
    if _has_same_examples(mine, their) and (found := find_difference(mine, their)) is not None:
        low, high = f"{100 * found.low:+.1f}", f"{100 * found.high:+.1f}"
        difference = f"{100 * found.mean:+.1f} [{low}, {high}]"
    changes = [each.change for each in find_changes(mine, their)]
    return [
        mine.combination.label,
        mine.combination.budget or NOTHING,
        *shown,
        difference,
        str(changes.count("lost")),
        str(changes.count("won")),
    ]


def _has_same_examples(mine: ResultRow, their: ResultRow) -> bool:
    return all(
        [each.id for each in records] == [each.id for each in their.records[task]]
        for task, records in mine.records.items()
    )
