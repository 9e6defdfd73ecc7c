"""Tables: drawn on a terminal, plain aligned text everywhere else."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Cells = Sequence[str]
"""One row. A first cell may have more lines: they are remarks, and stand below the row."""

GAP = "  "


@dataclass(frozen=True)
class TextTable:
    """A table for people; as a string it is plain text.

    Attributes
    ----------
    header : sequence of str
        Names of the columns.
    rows : sequence of sequence of str
        As many cells each. A first cell may have more lines, see `Cells`.
    words : int
        How many columns, counted from the left, hold words; the others hold numbers, which stand
        to the right.
    above : str
        A line above the table.
    notes : sequence of str
        Lines below it.
    """

    header: Cells
    rows: Sequence[Cells]
    words: int = 1
    above: str = ""
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        above = [self.above, ""] if self.above else []
        below = ["", *self.notes] if self.notes else []
        lines = [*above, align_columns(self.header, self.rows, words=self.words), *below]
        return "\n".join(lines)


def print_table(table: TextTable) -> None:
    """Print a table as wherever it goes can show it best."""
    if not sys.stdout.isatty():
        print(table)
        return
    if table.above:
        print(f"{table.above}\n")
    right = [place >= table.words for place in range(len(table.header))]
    _draw_table(table.header, table.rows, right)
    if table.notes:
        print("", *table.notes, sep="\n")


def print_markdown(text: str) -> None:
    """Print Markdown as it is; on a terminal with its tables drawn."""
    if not sys.stdout.isatty():
        print(text)
        return
    lines = text.splitlines()
    for is_table, block in itertools.groupby(lines, lambda line: line.startswith("|")):
        if is_table:
            header, marks, *rows = map(_split_row, block)
            columns = zip(*rows, strict=True)
            _draw_table(header, rows, list(map(_holds_numbers, marks, columns)))
        else:
            _wrap_paragraphs(block)


def align_columns(header: Cells, rows: Sequence[Cells], *, words: int = 1) -> str:
    """Write columns as wide as they need to be; parameters are those of `TextTable`."""
    lines = [list(header), *map(list, rows)]
    remarks = []
    for cells in lines:
        cells[0], *below = cells[0].split("\n")
        remarks.append([GAP + line for line in below])
    widths = _measure_columns(lines)
    written = []
    for cells, below in zip(lines, remarks, strict=True):
        padded = (
            cell.ljust(width) if place < words else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        written += [GAP.join(padded).rstrip(), *below]
    return "\n".join(written)


def _measure_columns(lines: Sequence[Cells]) -> list[int]:
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def _split_row(line: str) -> list[str]:
    """Cells of a row in Markdown."""
    cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
    return [re.sub(r"\\(.)", r"\1", cell.strip()) for cell in cells]


def _holds_numbers(mark: str, column: Sequence[str]) -> bool:
    return mark.endswith(":") or all(re.match(r"[-+]?\d|-$", cell) for cell in column)


def _wrap_paragraphs(lines: Iterable[str]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    for line in lines:
        console.print(line.lstrip("# "), markup=False, style="bold" if line[:1] == "#" else None)


def _draw_table(header: Cells, rows: Sequence[Cells], right: Sequence[bool]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if any(right) and _is_too_wide(header, rows, console.width):
        header, rows = _turn(header, rows)
        right = [place > 0 for place in range(len(header))]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name, is_right in zip(header, right, strict=True):
        table.add_column(Text(name), justify="right" if is_right else "left")
    for cells in rows:
        first, line, remarks = cells[0].partition("\n")
        table.add_row(
            Text.assemble((first, "cyan"), (line + remarks, "dim")), *map(Text, cells[1:])
        )
    console.print(table)


def _is_too_wide(header: Cells, rows: Sequence[Cells], width: int) -> bool:
    """Whether a table does not fit, and would be narrower with its rows as columns."""
    turned_header, turned_rows = _turn(header, rows)
    needed = _measure_table([header, *rows])
    return needed > width and _measure_table([turned_header, *turned_rows]) < needed


def _measure_table(lines: Sequence[Cells]) -> int:
    return sum(_measure_columns(lines)) + len(GAP) * (len(lines[0]) - 1)


def _turn(header: Cells, rows: Sequence[Cells]) -> tuple[Cells, Sequence[Cells]]:
    """Make rows of columns."""
    first, *others = zip(header, *rows, strict=True)
    return first, others
