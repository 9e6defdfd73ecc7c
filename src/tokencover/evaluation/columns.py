"""The columns of results, and the table that compares methods.

`list_columns` is the only list of columns. An entry appears in the terminal, Markdown, LaTeX, HTML,
CSV, pandas and JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial
from typing import Any, Final, Literal

from tokencover.evaluation.scoring import (
    ResultRow,
    average_all,
    compute_difference,
    compute_relative_average,
    get_reference,
    get_unpruned,
)
from tokencover.statistics import Interval

NOTHING: Final = "-"
"""The cell of a missing number."""

Kind = Literal["setting", "quality", "cost", "difference", "status"]


@dataclass(frozen=True)
class Column:
    """One column of results.

    Attributes
    ----------
    key : str
        Its name in CSV, pandas and JSON; a `difference` also has ``key_low`` and ``key_high``.
    value : callable
        From a row to the value in CSV, pandas and JSON: fractions of 1, an `Interval` for a
        difference, None where nothing was measured.
    heading : str
        Its heading in tables for people, which leave it out if this is empty.
    text : callable, optional
        From a row that has results to its cell in tables for people; by default the value in
        percent.
    note : str
        What it means, in sentences; empty if the note of another column explains it.
    kind : "setting", "quality", "cost", "difference" or "status"
        Quality has a best and a second at each budget. Notes of one kind are grouped.
    """

    key: str
    value: Callable[[ResultRow], Any]
    heading: str = ""
    text: Callable[[ResultRow], str] | None = None
    note: str = ""
    kind: Kind = "cost"

    def format_cell(self, row: ResultRow) -> str:
        """Return the cell of a row that has results."""
        return format_percent(self.value(row)) if self.text is None else self.text(row)

    def export(self, row: ResultRow) -> dict[str, Any]:
        """Return the entries of a row in CSV, pandas and JSON."""
        value = self.value(row)
        if self.kind != "difference":
            return {self.key: value}
        parts = {"": "mean", "_low": "low", "_high": "high"}
        return {f"{self.key}{end}": getattr(value, name, None) for end, name in parts.items()}


def list_columns(rows: Sequence[ResultRow], groups: Sequence[str], reference: str) -> list[Column]:
    """List all columns of results.

    Some columns compare a row with another one of `rows`; `reference` is the label or name of the
    method that the others are compared with at the same budget.
    """
    unpruned = get_unpruned(rows)

    def compare(row: ResultRow) -> Interval | None:
        return compute_difference(row, get_reference(row, rows, reference)) if row.summary else None

    def average(row: ResultRow) -> float | None:
        percent = compute_relative_average(row, unpruned)
        return None if percent is None else percent / 100

    return [
        Column("method", lambda row: row.combination.label, kind="setting"),
        Column("budget", partial(_get_setting, "budget"), kind="setting"),
        Column("budget_mode", partial(_get_setting, "budget_mode"), kind="setting"),
        *_list_accuracies(rows, groups),
        Column(
            "relative",
            average,
            "Avg. %",
            lambda row: format_decimal(compute_relative_average(row, unpruned)),
            "Avg. is, as in the MoB paper, the mean over tasks of accuracy / accuracy unpruned.",
            "quality",
        ),
        *_list_costs(rows),
        Column(
            "difference",
            compare,
            f"minus {reference} [95 %]",
            lambda row: format_difference(compare(row)),
            f"The last column is the accuracy, mean over tasks, minus that of {reference} at the "
            "same budget, in points, with a paired 95 % bootstrap interval over clusters of "
            "examples.",
            "difference",
        ),
        Column("failed", lambda row: row.summary and row.summary.failed, kind="status"),
        Column("cannot", lambda row: row.cannot, kind="status"),
    ]


def _list_accuracies(rows: Sequence[ResultRow], groups: Sequence[str]) -> list[Column]:
    """The mean accuracy, which only programs get, then that of each group."""
    headings = next((row.summary.headings for row in rows if row.summary is not None), {})
    return [
        Column(
            "accuracy",
            lambda row: row.summary and average_all(list(row.summary.accuracy.values())),
            kind="quality",
        ),
        *(
            Column(
                f"accuracy_{group}",
                partial(_get_group, group),
                headings.get(group, group),
                note="Accuracy in percent, with equal weight for each task of a group.",
                kind="quality",
            )
            for group in groups
        ),
    ]


def _list_costs(rows: Sequence[ResultRow]) -> list[Column]:
    """Tokens, FLOPs, and times if anything was timed."""
    is_timed = any(row.first_token for row in rows if row.combination.method is not None)
    return [
        Column(
            "tokens",
            partial(_get_cost, "tokens"),
            "tokens left",
            lambda row: format_decimal(_get_cost("tokens", row)),
            "Tokens left is the number of visual tokens after the last pruning step, mean per "
            "layer the mean number that a decoder layer processes.",
        ),
        Column(
            "mean_tokens",
            partial(_get_cost, "mean_tokens"),
            "mean per layer",
            lambda row: format_decimal(_get_cost("mean_tokens", row)),
        ),
        Column(
            "flops",
            partial(_get_cost, "flops"),
            "FLOPs %",
            note="FLOPs are those of the decoder's prefill, relative to the unpruned model.",
        ),
        Column(
            "first_token",
            lambda row: row.first_token,
            "TTFT ratio" if is_timed else "",
            lambda row: format_decimal(row.first_token, 2),
            "TTFT is the time to the first token (medians), relative to the unpruned model of the "
            "same run.",
        ),
    ]


def _get_setting(name: str, row: ResultRow) -> Any:
    return getattr(row.combination.innermost, name, None)


def _get_cost(name: str, row: ResultRow) -> float | None:
    cost: float | None = getattr(row.summary, name, None)
    return cost


def _get_group(group: str, row: ResultRow) -> float | None:
    return None if row.summary is None else row.summary.groups.get(group)


def _get_task(task: str, row: ResultRow) -> float | None:
    return None if row.summary is None else row.summary.accuracy[task]


def format_decimal(value: float | None, digits: int = 1) -> str:
    """A number with so many digits after the point."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def format_percent(fraction: float | None) -> str:
    """A fraction in percent, without the sign."""
    return format_decimal(None if fraction is None else 100 * fraction)


def format_difference(interval: Interval | None) -> str:
    """A difference in points with its interval."""
    if interval is None:
        return NOTHING
    ends = interval.mean, interval.low, interval.high
    mean, low, high = (f"{100 * value:+.1f}" for value in ends)
    return f"{mean} [{low}, {high}]"


# ---- the table ------------------------------------------------------------------------------


class Rank(Enum):
    """How a cell ranks in its column at the same budget."""

    NONE = ""
    BEST = "best"
    SECOND = "second"


@dataclass(frozen=True)
class TableCell:
    """A number as it is printed."""

    text: str
    rank: Rank = Rank.NONE


@dataclass(frozen=True)
class TableLine:
    """A line of the table: one cell per column, or a remark if the method has no numbers."""

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
    """Methods at budgets with their accuracy and cost; its columns are those with a heading."""

    columns: tuple[Column, ...]
    lines: tuple[TableLine, ...]

    @property
    def header(self) -> tuple[str, ...]:
        """Headings of the cells."""
        return tuple(column.heading for column in self.columns)

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
        """What the columns mean, by kind, each note once."""
        notes: dict[Kind, dict[str, None]] = {}
        for column in self.columns:
            notes.setdefault(column.kind, {})[column.note] = None
        listed = {kind: list(filter(None, texts)) for kind, texts in notes.items()}
        if listed:
            listed[next(iter(listed))] += self._list_cautions()
        return {kind: " ".join(texts) for kind, texts in listed.items()}

    def _list_cautions(self) -> list[str]:
        """The cautions of the methods' cards, each once."""
        methods = [line.row.combination.method for line in self.lines]
        cautions = dict.fromkeys(method.card.caution for method in methods if method is not None)
        return [caution for caution in cautions if caution]


def make_table(
    rows: Sequence[ResultRow], groups: Sequence[str], tasks: Sequence[str], reference: str = "mob"
) -> ResultsTable:
    """Build the table that compares methods.

    `groups` and `tasks` are those of the rows. `reference` is the label or name of the method that
    the others are compared with at the same budget.
    """
    columns = [column for column in list_columns(rows, groups, reference) if column.heading]
    return _fill_table(rows, columns, len(tasks))


def make_task_table(rows: Sequence[ResultRow], tasks: Sequence[str]) -> ResultsTable:
    """Build the table with a column for each task."""
    columns = [Column(task, partial(_get_task, task), task, kind="quality") for task in tasks]
    return _fill_table(rows, columns, len(tasks))


def _fill_table(rows: Sequence[ResultRow], columns: Sequence[Column], tasks: int) -> ResultsTable:
    texts = [
        None if row.summary is None else [column.format_cell(row) for column in columns]
        for row in rows
    ]
    ranks = _rank(rows, texts, columns)
    lines = []
    for row, cells in zip(rows, texts, strict=True):
        if cells is None:
            lines.append(TableLine(row, (), _make_remark(row, tasks)))
        else:
            budget = row.combination.budget
            marks = [ranks.get((budget, *cell), Rank.NONE) for cell in enumerate(cells)]
            marks = [Rank.NONE] * len(cells) if row.combination.method is None else marks
            lines.append(TableLine(row, tuple(map(TableCell, cells, marks))))
    return ResultsTable(tuple(columns), tuple(lines))


def _rank(
    rows: Sequence[ResultRow], texts: Sequence[Sequence[str] | None], columns: Sequence[Column]
) -> dict[tuple[str, int, str], Rank]:
    """Ranks by budget, column index and text: equal texts are marked alike."""
    ranks = {}
    for budget in dict.fromkeys(row.budget for row in rows):
        contest = [
            cells
            for row, cells in zip(rows, texts, strict=True)
            if cells is not None and row.combination.method is not None and row.budget == budget
        ]
        for index, column in enumerate(columns):
            if column.kind == "quality":
                best = rank_texts([cells[index] for cells in contest])
                ranks.update({(budget, index, text): rank for text, rank in best.items()})
    return ranks


def rank_texts(texts: Sequence[str]) -> dict[str, Rank]:
    """Best and second best of printed numbers.

    A column in which all are alike, or with a single method, has no winner.
    """
    ordered = sorted({text for text in texts if text != NOTHING}, key=float, reverse=True)
    if len(ordered) < 2:
        return {}
    ranks = [Rank.BEST, Rank.SECOND if len(texts) > 2 else Rank.NONE]
    return dict(zip(ordered, ranks, strict=False))


def _make_remark(row: ResultRow, tasks: int) -> str:
    if row.cannot is not None:
        return f"cannot: {' '.join(row.cannot.split())}"
    return f"not finished: {len(row.records)} of {tasks} tasks"
