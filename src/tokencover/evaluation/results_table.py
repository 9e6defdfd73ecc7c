"""The one table of results, whatever it is written as.

Its columns are the entries of `list_columns`: a new one is a new entry there, and shows in the
terminal, in Markdown, CSV and LaTeX, and on the page.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from typing import Final, Literal

from tokencover.evaluation.metrics import Summary
from tokencover.evaluation.result_rows import (
    ResultRow,
    find_average,
    find_reference,
    find_unpruned,
)
from tokencover.statistics import Interval, compute_paired_difference

NOTHING: Final = "-"
"""What stands where there is no number."""

Kind = Literal["quality", "cost", "difference"]


@dataclass(frozen=True)
class Column:
    """One column of a table of results.

    Attributes
    ----------
    name : str
        Its heading.
    value : callable
        The text of its cell, for a row that has results.
    note : str
        What it means, in sentences; empty if the note of another column says it.
    kind : "quality", "cost" or "difference"
        Quality has a best and a second at each budget. Notes of one kind stand together.
    """

    name: str
    value: Callable[[ResultRow, Summary], str]
    note: str = ""
    kind: Kind = "cost"


class Rank(Enum):
    """How a cell stands out among those of its column at the same budget."""

    NONE = ""
    BEST = "best"
    SECOND = "second"


@dataclass(frozen=True)
class TableCell:
    """A number as it is shown."""

    text: str
    rank: Rank = Rank.NONE


@dataclass(frozen=True)
class TableLine:
    """A line of the table.

    Attributes
    ----------
    row : ResultRow
        What it is about.
    cells : tuple of TableCell
        One for each column; empty if the method has no numbers.
    remark : str
        Why there are none; empty if there are.
    """

    row: ResultRow
    cells: tuple[TableCell, ...]
    remark: str = ""

    @property
    def label(self) -> str:
        """The method's."""
        return self.row.combination.label

    @property
    def budget(self) -> str:
        """The method's; empty for the unpruned model."""
        return self.row.combination.budget


@dataclass(frozen=True)
class ResultsTable:
    """Methods at budgets: what each keeps, costs and answers.

    Attributes
    ----------
    columns : tuple of Column
        Those of the cells.
    lines : tuple of TableLine
        In the order of the rows.
    """

    columns: tuple[Column, ...]
    lines: tuple[TableLine, ...]

    @property
    def header(self) -> tuple[str, ...]:
        """Headings of the cells."""
        return tuple(column.name for column in self.columns)

    @cached_property
    def sections(self) -> dict[str, tuple[TableLine, ...]]:
        """Lines by budget; that of the unpruned model is empty."""
        budgets = dict.fromkeys(line.budget for line in self.lines)
        return {
            budget: tuple(line for line in self.lines if line.budget == budget)
            for budget in budgets
        }

    @property
    def notes(self) -> dict[Kind, str]:
        """What columns mean, by kind; what several have in common is said once."""
        kinds = dict.fromkeys(column.kind for column in self.columns)
        notes = {
            kind: dict.fromkeys(each.note for each in self.columns if each.kind == kind)
            for kind in kinds
        }
        told = {kind: list(filter(None, each)) for kind, each in notes.items()}
        if told:
            told[next(iter(told))] += self._list_cautions()
        return {kind: " ".join(each) for kind, each in told.items()}

    def _list_cautions(self) -> list[str]:
        """What a reader must know about the methods themselves, once each."""
        methods = [line.row.combination.method for line in self.lines]
        cautions = dict.fromkeys(each.card.caution for each in methods if each is not None)
        return [caution for caution in cautions if caution]

    def without_ranks(self) -> ResultsTable:
        """The same table in which no cell stands out."""
        lines = (
            dataclasses.replace(line, cells=tuple(TableCell(cell.text) for cell in line.cells))
            for line in self.lines
        )
        return ResultsTable(self.columns, tuple(lines))


def list_columns(rows: Sequence[ResultRow], groups: Sequence[str], reference: str) -> list[Column]:
    """The columns of the table that compares methods, after those of method and budget.

    Parameters
    ----------
    rows : sequence of ResultRow
        All of the table: some columns compare a row with another.
    groups : sequence of str
        Groups of tasks.
    reference : str
        Label or name of the method that the others are compared with at the same budget.
    """
    unpruned = find_unpruned(rows)
    headings = next((row.summary.headings for row in rows if row.summary is not None), {})
    return [
        *(
            Column(
                headings.get(group, group),
                partial(_show_group, group),
                "Accuracy in percent, tasks of a group counting the same.",
                "quality",
            )
            for group in groups
        ),
        Column(
            "Avg. %",
            lambda row, summary: format_decimal(find_average(row, unpruned)),
            "Avg. is, as in the MoB paper, the mean over tasks of accuracy / accuracy unpruned.",
            "quality",
        ),
        Column(
            "tokens left",
            lambda row, summary: format_decimal(summary.tokens),
            "Tokens left is what remains of the visual tokens in the end, mean per layer what a "
            "decoder block works on.",
        ),
        Column("mean per layer", lambda row, summary: format_decimal(summary.mean_tokens)),
        Column(
            "FLOPs %",
            lambda row, summary: format_percent(summary.flops),
            "FLOPs are those of the decoder's prefill, relative to the unpruned model.",
        ),
        *_list_timing(rows),
        Column(
            f"minus {reference} [95 %]",
            lambda row, summary: _show_difference(row, find_reference(row, rows, reference)),
            f"The last column is the accuracy, mean over tasks, minus that of {reference} at the "
            "same budget, in points, with a paired 95 % bootstrap interval over clusters of "
            "examples.",
            "difference",
        ),
    ]


def _list_timing(rows: Sequence[ResultRow]) -> list[Column]:
    """The column of times, if anything was timed: the unpruned model is 1 by itself."""
    if not any(row.first_token for row in rows if row.combination.method is not None):
        return []
    return [
        Column(
            "TTFT ratio",
            lambda row, summary: format_decimal(row.first_token, 2),
            "TTFT is the time to the first token (medians), relative to the unpruned model of the "
            "same run.",
        )
    ]


def make_table(
    rows: Sequence[ResultRow], groups: Sequence[str], tasks: Sequence[str], reference: str = "mob"
) -> ResultsTable:
    """The table that compares methods.

    Parameters
    ----------
    rows : sequence of ResultRow
        In the order of its lines.
    groups, tasks : sequence of str
        What was asked.
    reference : str
        Label or name of the method that the others are compared with at the same budget.
    """
    return _fill_table(rows, list_columns(rows, groups, reference), len(tasks))


def make_task_table(rows: Sequence[ResultRow], tasks: Sequence[str]) -> ResultsTable:
    """The table with a column for each task."""
    columns = [Column(task, partial(_show_task, task), kind="quality") for task in tasks]
    return _fill_table(rows, columns, len(tasks))


def format_decimal(value: float | None, digits: int = 1) -> str:
    """A number with so many digits after the point."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def format_percent(share: float | None) -> str:
    """A share in percent, without the sign."""
    return format_decimal(None if share is None else 100 * share)


def _show_group(group: str, row: ResultRow, summary: Summary) -> str:
    return format_percent(summary.groups[group])


def _show_task(task: str, row: ResultRow, summary: Summary) -> str:
    return format_percent(summary.accuracy[task])


def find_difference(row: ResultRow, reference: ResultRow | None) -> Interval | None:
    """How much better than another row, mean over tasks; None if that is not known."""
    if reference is None:
        return None
    for task, records in row.records.items():
        pairs = zip(records, reference.records[task], strict=False)
        if not any(one.failed is None and two.failed is None for one, two in pairs):
            return None
    return compute_paired_difference(row.records, reference.records)


def _show_difference(row: ResultRow, reference: ResultRow | None) -> str:
    """How much better than another row, in points, with its interval."""
    found = find_difference(row, reference)
    if found is None:
        return NOTHING
    mean, low, high = (f"{100 * each:+.1f}" for each in (found.mean, found.low, found.high))
    return f"{mean} [{low}, {high}]"


def _fill_table(rows: Sequence[ResultRow], columns: Sequence[Column], tasks: int) -> ResultsTable:
    texts = [
        None if row.summary is None else [each.value(row, row.summary) for each in columns]
        for row in rows
    ]
    ranks = _rank(rows, texts, columns)
    lines = []
    for row, cells in zip(rows, texts, strict=True):
        if cells is None:
            lines.append(TableLine(row, (), _make_remark(row, tasks)))
        else:
            budget = row.combination.budget
            found = [ranks.get((budget, *each), Rank.NONE) for each in enumerate(cells)]
            found = [Rank.NONE] * len(cells) if _is_unpruned(row) else found
            lines.append(TableLine(row, tuple(map(TableCell, cells, found))))
    return ResultsTable(tuple(columns), tuple(lines))


def _rank(
    rows: Sequence[ResultRow], texts: Sequence[Sequence[str] | None], columns: Sequence[Column]
) -> dict[tuple[str, int, str], Rank]:
    """Ranks by budget, place of the column and text: what looks alike is marked alike."""
    ranks = {}
    for budget in dict.fromkeys(row.combination.budget for row in rows):
        contest = [
            cells
            for row, cells in zip(rows, texts, strict=True)
            if cells is not None and not _is_unpruned(row) and row.combination.budget == budget
        ]
        for place, column in enumerate(columns):
            if column.kind == "quality":
                best = _find_best([cells[place] for cells in contest])
                ranks.update({(budget, place, text): rank for text, rank in best.items()})
    return ranks


def _find_best(texts: Sequence[str]) -> dict[str, Rank]:
    """Best and second best as they are shown.

    A column in which all are alike, or with a single method, has no winner.
    """
    ordered = sorted({text for text in texts if text != NOTHING}, key=float, reverse=True)
    if len(ordered) < 2:
        return {}
    ranks = [Rank.BEST, Rank.SECOND if len(texts) > 2 else Rank.NONE]
    return dict(zip(ordered, ranks, strict=False))


def _is_unpruned(row: ResultRow) -> bool:
    return row.combination.method is None


def _make_remark(row: ResultRow, tasks: int) -> str:
    if row.cannot is not None:
        return f"cannot: {' '.join(row.cannot.split())}"
    return f"not finished: {len(row.records)} of {tasks} tasks"
