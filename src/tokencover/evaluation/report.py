"""The table at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokencover.evaluation.metrics import Summary, average_against, summarize
from tokencover.evaluation.plan import Combination, Plan, Scoring, Timing
from tokencover.evaluation.results import Record, Results
from tokencover.evaluation.statistics import paired_difference
from tokencover.evaluation.timing import ratio

NOTHING = "-"

Records = Mapping[str, Sequence[Record]]
"""By task."""


@dataclass(frozen=True)
class Row:
    """What is known of one combination.

    Attributes
    ----------
    combination : Combination
        Method and budget.
    records : mapping
        By task; empty if the method cannot run on one of them.
    summary : Summary, optional
        Of the records.
    first_token : float, optional
        Time to the first token, as a share of that without pruning.
    cannot : str, optional
        Why the method cannot run.
    """

    combination: Combination
    records: Records
    summary: Summary | None
    first_token: float | None
    cannot: str | None


def collect(plan: Plan, results: Results) -> list[Row]:
    """Read everything a table needs."""
    return [_row(each, plan, results) for each in plan.combinations]


def render(rows: Sequence[Row], reference: str = "mob") -> str:
    """A table in Markdown, with remarks below.

    Parameters
    ----------
    rows : sequence of Row
        The first is the unpruned model.
    reference : str
        The method, by its label or name, that others are compared with at the same budget.
    """
    unpruned = rows[0]
    groups = list(unpruned.summary.groups) if unpruned.summary is not None else []
    header = ["method", "budget", *groups, "Avg. %", "tokens left", "mean per layer"]
    header += ["FLOPs %", "TTFT ratio", f"minus {reference} [95 %]"]
    lines = [header, ["---"] * len(header)]
    lines += [_cells(row, unpruned, _reference(row, rows, reference), groups) for row in rows]
    table = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    return "\n\n".join([table, *_remarks(rows, reference)])


def _row(combination: Combination, plan: Plan, results: Results) -> Row:
    found = {task.name: results.scores(Scoring(combination, task)) for task in plan.tasks}
    reasons = {name: each.cannot for name, each in found.items() if each.cannot is not None}
    if reasons:
        name, reason = next(iter(reasons.items()))
        where = "" if len(reasons) == len(found) else f"{name}: "
        return Row(combination, {}, None, None, where + reason)
    records = {name: each.records for name, each in found.items()}
    summary = summarize(records, {task.name: task.group for task in plan.tasks})
    timed = 1.0 if combination.method is None else None
    if plan.timed and combination.method is not None:
        timed = ratio(results.seconds(Timing(combination, plan.tasks[0])))
    return Row(combination, records, summary, timed, None)


def _reference(row: Row, rows: Sequence[Row], name: str) -> Row | None:
    """The row to compare with, None if there is none, or if it is this one."""
    method = row.combination.method
    same = [
        each
        for each in rows
        if each.summary is not None
        and each.combination.method is not None
        and (method is None or each.combination.budget == row.combination.budget)
        and name in (each.combination.label, each.combination.method.name)
    ]
    exact = [each for each in same if each.combination.label == name]
    found = next(iter(exact or same), None)
    return None if found is row or method is None else found


def _cells(row: Row, unpruned: Row, reference: Row | None, groups: Sequence[str]) -> list[str]:
    head = [row.combination.label, row.combination.budget or NOTHING]
    summary = row.summary
    if summary is None:
        return [*head, f"cannot: {_one_line(row.cannot or '')}", *[NOTHING] * (len(groups) + 5)]
    average = None if unpruned.summary is None else average_against(summary, unpruned.summary)
    return [
        *head,
        *[_percent(summary.groups[group]) for group in groups],
        _number(average, 1),
        _number(summary.tokens, 1),
        _number(summary.mean_tokens, 1),
        _percent(summary.flops),
        _number(row.first_token, 2),
        NOTHING if reference is None else _difference(row.records, reference.records),
    ]


def _difference(records: Records, reference: Records) -> str:
    if not all(_paired(records[task], reference[task]) for task in records):
        return NOTHING
    found = paired_difference(records, reference)
    mean, low, high = (f"{100 * each:+.1f}" for each in (found.mean, found.low, found.high))
    return f"{mean} [{low}, {high}]"


def _paired(first: Sequence[Record], second: Sequence[Record]) -> bool:
    pairs = zip(first, second, strict=True)
    return any(one.failed is None and two.failed is None for one, two in pairs)


def _remarks(rows: Sequence[Row], reference: str) -> list[str]:
    remarks = [
        "Accuracy in percent, tasks of a group counting the same. Avg. is the mean over tasks of "
        "accuracy / accuracy unpruned. TTFT is the time to the first token, as a share of that of "
        f"the unpruned model, medians. The last column is the accuracy minus that of {reference} "
        "at the same budget, in points, with a paired bootstrap interval over clusters of examples."
    ]
    for row in rows:
        if row.summary is not None and row.summary.failed:
            count = sum(len(records) for records in row.records.values())
            name = str(row.combination)
            remarks.append(f"{name}: {row.summary.failed} of {count} examples failed, not scored.")
    unpruned = rows[0].summary
    zero = [task for task, value in unpruned.accuracy.items() if not value] if unpruned else []
    if zero:
        remarks.append(
            f"Avg. is not defined: the unpruned model has no score in {', '.join(zero)}."
        )
    return remarks


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _percent(share: float | None) -> str:
    return _number(None if share is None else 100 * share, 1)


def _number(value: float | None, digits: int) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"
