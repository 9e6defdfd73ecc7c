"""The table that compares methods, before anybody writes it as HTML or Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from tokencover.evaluation.metrics import Summary, average_against
from tokencover.evaluation.report import NOTHING, Row, decimal, difference, percent, reference_of
from tokencover.evaluation.reporting.stored import Stored


class Mark(Enum):
    """How a cell stands out among those of its column at the same budget."""

    NONE = ""
    BEST = "best"
    SECOND = "second"


@dataclass(frozen=True)
class Cell:
    """A number as it is shown."""

    text: str
    mark: Mark = Mark.NONE


@dataclass(frozen=True)
class Line:
    """A row of the table.

    Attributes
    ----------
    row : Row
        What it is about.
    cells : tuple of Cell
        One for each column; empty if the method has no numbers.
    remark : str
        Why there are none; empty if there are.
    """

    row: Row
    cells: tuple[Cell, ...]
    remark: str = ""


@dataclass(frozen=True)
class Section:
    """All methods at one budget; the budget of the unpruned model is empty."""

    budget: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Comparison:
    """Methods at budgets: what each keeps, costs and answers.

    Attributes
    ----------
    columns : tuple of str
        Headings of the cells.
    sections : tuple of Section
        The unpruned model, then budget by budget.
    """

    columns: tuple[str, ...]
    sections: tuple[Section, ...]


def compare(stored: Stored, reference: str = "mob") -> Comparison:
    """The main table: groups, the paper's "Avg.", tokens, operations, time, difference.

    Parameters
    ----------
    stored : Stored
        Results.
    reference : str
        Name or label of the method that the others are compared with at the same budget.
    """
    groups = list(dict.fromkeys(stored.groups.values()))
    quality = len(groups) + 1
    columns = [*groups, "Avg. %", "tokens left", "mean per layer", "FLOPs %", "TTFT ratio"]
    columns.append(f"minus {reference} [95 %]")

    def cells(row: Row, summary: Summary) -> list[str]:
        return [
            *[percent(summary.groups[group]) for group in groups],
            decimal(average(row, stored)),
            decimal(summary.tokens),
            decimal(summary.mean_tokens),
            percent(summary.flops),
            decimal(row.first_token, 2),
            difference(row, reference_of(row, stored.rows, reference)),
        ]

    return Comparison(tuple(columns), _sections(stored, cells, quality))


def compare_tasks(stored: Stored) -> Comparison:
    """The table with a column for each task."""

    def cells(row: Row, summary: Summary) -> list[str]:
        return [percent(summary.accuracy[task]) for task in stored.groups]

    return Comparison(tuple(stored.groups), _sections(stored, cells, len(stored.groups)))


def average(row: Row, stored: Stored) -> float | None:
    """The paper's "Avg." of a row, None where it is not defined."""
    unpruned = stored.unpruned
    if unpruned is None or unpruned.summary is None or row.summary is None:
        return None
    return average_against(row.summary, unpruned.summary)


def _sections(
    stored: Stored, cells: Callable[[Row, Summary], list[str]], quality: int
) -> tuple[Section, ...]:
    budgets = list(dict.fromkeys(row.combination.budget for row in stored.rows))
    return tuple(Section(budget, _lines(stored, budget, cells, quality)) for budget in budgets)


def _lines(
    stored: Stored, budget: str, cells: Callable[[Row, Summary], list[str]], quality: int
) -> tuple[Line, ...]:
    rows = [row for row in stored.rows if row.combination.budget == budget]
    texts = [None if row.summary is None else cells(row, row.summary) for row in rows]
    contest = [
        text
        for row, text in zip(rows, texts, strict=True)
        if text is not None and row.combination.method is not None
    ]
    places = [_first_two([text[column] for text in contest]) for column in range(quality)]
    return tuple(
        Line(row, _marked(row, text, places), "" if text else _remark(row, len(stored.groups)))
        for row, text in zip(rows, texts, strict=True)
    )


def _marked(
    row: Row, texts: list[str] | None, places: Sequence[tuple[str | None, str | None]]
) -> tuple[Cell, ...]:
    if texts is None:
        return ()
    if row.combination.method is None:
        return tuple(map(Cell, texts))
    marks = [Mark.NONE] * len(texts)
    for column, (best, second) in enumerate(places):
        if texts[column] == best:
            marks[column] = Mark.BEST
        elif texts[column] == second:
            marks[column] = Mark.SECOND
    return tuple(map(Cell, texts, marks))


def _first_two(texts: Sequence[str]) -> tuple[str | None, str | None]:
    """Best and second best as they are shown: what looks alike is marked alike.

    A column in which all are alike, or with a single method, has no winner.
    """
    ordered = sorted({text for text in texts if text != NOTHING}, key=float, reverse=True)
    if len(ordered) < 2:
        return None, None
    return ordered[0], ordered[1] if len(texts) > 2 else None


def _remark(row: Row, tasks: int) -> str:
    if row.cannot is not None:
        return f"cannot: {' '.join(row.cannot.split())}"
    return f"not finished: {len(row.records)} of {tasks} tasks"
