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
    lines += [_cells(row, unpruned, reference_of(row, rows, reference), groups) for row in rows]
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


def reference_of(row: Row, rows: Sequence[Row], name: str) -> Row | None:
    """The row that this one is compared with, None if it is that itself or there is none."""
    if row.combination.method is None:
        return None
    same = [
        each
        for each in rows
        if each.summary is not None
        and each.combination.method is not None
        and each.combination.budget == row.combination.budget
        and name in (each.combination.label, each.combination.method.name)
    ]
    exact = [each for each in same if each.combination.label == name]
    found = next(iter(exact or same), None)
    return None if found is row else found


def _cells(row: Row, unpruned: Row, reference: Row | None, groups: Sequence[str]) -> list[str]:
    head = [row.combination.label, row.combination.budget or NOTHING]
    summary = row.summary
    if summary is None:
        return [*head, f"cannot: {_one_line(row.cannot or '')}", *[NOTHING] * (len(groups) + 5)]
    average = None if unpruned.summary is None else average_against(summary, unpruned.summary)
    return [
        *head,
        *[percent(summary.groups[group]) for group in groups],
        decimal(average),
        decimal(summary.tokens),
        decimal(summary.mean_tokens),
        percent(summary.flops),
        decimal(row.first_token, 2),
        difference(row, reference),
    ]


def difference(row: Row, reference: Row | None) -> str:
    """How much better than another row, in points, with its interval."""
    if reference is None:
        return NOTHING
    for task, records in row.records.items():
        pairs = zip(records, reference.records[task], strict=False)
        if not any(one.failed is None and two.failed is None for one, two in pairs):
            return NOTHING
    found = paired_difference(row.records, reference.records)
    mean, low, high = (f"{100 * each:+.1f}" for each in (found.mean, found.low, found.high))
    return f"{mean} [{low}, {high}]"


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


def decimal(value: float | None, digits: int = 1) -> str:
    """A number with so many digits behind the point."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def percent(share: float | None) -> str:
    """A share in percent, without the sign."""
    return decimal(None if share is None else 100 * share)
