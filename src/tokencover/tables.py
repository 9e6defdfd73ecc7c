"""Tables: drawn on a terminal, plain aligned text everywhere else."""

from __future__ import annotations

import itertools
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

Cells = Sequence[str]
"""One row. A first cell may have more lines: they are remarks, and stand below the row."""

GAP = "  "
WIDEST_PIPED = 119
"""Columns of a table that goes to a file or another program."""
LEAST_FOR_SENTENCES = 24
"""Letters of a first column in which sentences can be read."""


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
        print_text("\n".join(["", *table.notes]))


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one below the other; long values are wrapped, empty ones left out."""
    shown = [(name, value) for name, value in facts if value]
    gap = max(len(name) for name, _ in shown) + len(GAP)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDEST_PIPED
    for name, value in shown:
        print(
            textwrap.fill(
                value,
                width,
                initial_indent=name.ljust(gap),
                subsequent_indent=" " * gap,
                break_on_hyphens=False,
            )
        )


def print_text(text: str) -> None:
    """Print lines as they are; on a terminal those that are too long are wrapped between words."""
    if sys.stdout.isatty():
        _wrap_paragraphs(text.splitlines())
    else:
        print(text)


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
            _wrap_paragraphs(block, headings=True)


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
    return [
        max(len(line) for cell in column for line in cell.split("\n"))
        for column in zip(*lines, strict=True)
    ]


def _split_row(line: str) -> list[str]:
    """Cells of a row in Markdown."""
    cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
    return [re.sub(r"\\(.)", r"\1", cell.strip()) for cell in cells]


def _holds_numbers(mark: str, column: Sequence[str]) -> bool:
    return mark.endswith(":") or all(re.match(r"[-+]?\d|-$", cell) for cell in column)


def _wrap_paragraphs(lines: Iterable[str], *, headings: bool = False) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    for line in lines:
        is_heading = headings and line.startswith("#")
        text = line.lstrip("# ") if is_heading else line
        console.print(text, markup=False, style="bold" if is_heading else None)


def _draw_table(header: Cells, rows: Sequence[Cells], right: Sequence[bool]) -> None:
    """Draw a table; too wide, one of numbers is turned or cut, one of words becomes a list."""
    from rich.console import Console

    console = Console(highlight=False)
    if not any(right) and not _fits(_find_narrowest(header, rows), console.width):
        _draw_list(console, header, rows)
        return
    if not any(right) or _fits([header, *rows], console.width):
        _draw_part(console, header, rows, right)
        return
    turned_header, turned_rows = _turn(header, rows)
    if _fits([turned_header, *turned_rows], console.width):
        _draw_part(console, turned_header, turned_rows, [False, *[True] * len(rows)])
        return
    for number, part in enumerate(_cut_columns(header, rows, console.width)):
        if number:
            console.print()
        taken = [[cells[place] for place in part] for cells in [header, *rows]]
        _draw_part(console, taken[0], taken[1:], [right[place] for place in part])


def _draw_part(
    console: Console, header: Cells, rows: Sequence[Cells], right: Sequence[bool]
) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name, is_right in zip(header, right, strict=True):
        table.add_column(Text(name), justify="right" if is_right else "left")
    for cells in rows:
        first, line, remarks = cells[0].partition("\n")
        table.add_row(
            Text.assemble((first, "cyan"), (line + remarks, "dim")), *map(Text, cells[1:])
        )
    console.print(table)


def _draw_list(console: Console, header: Cells, rows: Sequence[Cells]) -> None:
    """Each row below the one before, a line for each of its cells."""
    from rich.text import Text

    for cells in rows:
        first, line, remarks = cells[0].partition("\n")
        console.print(Text.assemble((first, "bold cyan"), (line + remarks, "dim")))
        for name, cell in zip(header[1:], cells[1:], strict=True):
            if cell:
                console.print(Text.assemble((f"{GAP}{name}: ", "bold"), cell))


def _find_narrowest(header: Cells, rows: Sequence[Cells]) -> list[list[str]]:
    """A line that is as wide as columns can be made without breaking words."""
    columns = zip(header, *rows, strict=True)
    widths = [
        max(len(word) for cell in column for word in cell.split() or [""]) for column in columns
    ]
    return [["x" * max(widths[0], LEAST_FOR_SENTENCES), *("x" * width for width in widths[1:])]]


def _fits(lines: Sequence[Cells], width: int) -> bool:
    return sum(_measure_columns(lines)) + len(GAP) * (len(lines[0]) - 1) <= width


def _cut_columns(header: Cells, rows: Sequence[Cells], width: int) -> list[list[int]]:
    """Places of columns for each part; every part begins with those that tell the rows apart."""
    lines = [header, *rows]
    keys = 1
    while keys < len(header) - 1 and len({tuple(row[:keys]) for row in rows}) < len(rows):
        keys += 1
    parts = [list(range(keys))]
    for place in range(keys, len(header)):
        wider = [*parts[-1], place]
        if len(parts[-1]) > keys and not _fits([[c[at] for at in wider] for c in lines], width):
            wider = [*range(keys), place]
            parts.append(wider)
        parts[-1] = wider
    return parts


def _turn(header: Cells, rows: Sequence[Cells]) -> tuple[Cells, Sequence[Cells]]:
    """Make rows of columns."""
    first, *others = zip(header, *rows, strict=True)
    return first, others
