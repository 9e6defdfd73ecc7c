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
LONGEST_CELL = 60
"""Letters of a cell in a table that is divided; the first cell, a name, is never cut."""
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
    if not sys.stdout.isatty() and _measure_lines(str(table).splitlines()) <= WIDEST_PIPED:
        print(table)
        return
    if table.above:
        print_text(table.above)
        print()
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
    """Print lines; those that are too long are wrapped between words."""
    _wrap_paragraphs(text.splitlines())


def print_markdown(text: str) -> None:
    """Print Markdown; on a terminal with its tables drawn, elsewhere with wide tables divided."""
    lines = text.splitlines()
    for is_table, block in itertools.groupby(lines, lambda line: line.startswith("|")):
        if not is_table:
            _wrap_paragraphs(block, headings=True)
        elif not sys.stdout.isatty():
            print("\n".join(_divide_markdown(list(block))))
        else:
            header, marks, *rows = map(_split_row, block)
            columns = zip(*rows, strict=True)
            _draw_table(header, rows, list(map(_holds_numbers, marks, columns)))


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


def _measure_lines(lines: Iterable[str]) -> int:
    return max(map(len, lines), default=0)


def _divide_markdown(lines: list[str]) -> list[str]:
    """Divide a table that is too wide: every part begins with the columns that name its rows."""
    if _measure_lines(lines) <= WIDEST_PIPED:
        return lines
    table = [_split_cells(line) for line in lines]
    full_texts = []
    for cells in table:
        for place, cell in enumerate(cells[1:], start=1):
            if len(cell) > LONGEST_CELL:
                cells[place] = textwrap.shorten(cell, LONGEST_CELL, placeholder=" ...")
                full_texts += [
                    "",
                    *textwrap.wrap(f"{' '.join(cells[:place])}: {cell}", WIDEST_PIPED),
                ]
    parts = [list(range(len(table[0])))]
    if _measure_lines(_join_cells(table, parts[0])) > WIDEST_PIPED:
        parts = _cut_columns(table[0], table[2:], WIDEST_PIPED - len("|  |"), gap=len(" | "))
    divided = [line for part in parts for line in [*_join_cells(table, part), ""]]
    return divided[:-1] + full_texts


def _join_cells(table: Sequence[Cells], part: Sequence[int]) -> list[str]:
    """Some columns of a table as Markdown."""
    return ["| " + " | ".join(cells[at] for at in part) + " |" for cells in table]


def _split_cells(line: str) -> list[str]:
    """Cells of a row in Markdown, as they are written there."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def _split_row(line: str) -> list[str]:
    """Cells of a row in Markdown, as they are read."""
    return [re.sub(r"\\(.)", r"\1", cell) for cell in _split_cells(line)]


def _holds_numbers(mark: str, column: Sequence[str]) -> bool:
    return mark.endswith(":") or all(re.match(r"[-+]?\d|-$", cell) for cell in column)


def _wrap_paragraphs(lines: Iterable[str], *, headings: bool = False) -> None:
    if not sys.stdout.isatty():
        for line in lines:
            begin = line[: len(line) - len(line.lstrip())]
            print(
                textwrap.fill(
                    line,
                    WIDEST_PIPED,
                    subsequent_indent=begin,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
                if len(line) > WIDEST_PIPED
                else line
            )
        return
    from rich.console import Console

    console = Console(highlight=False)
    for line in lines:
        is_heading = headings and line.startswith("#")
        text = line.lstrip("# ") if is_heading else line
        console.print(text, markup=False, style="bold" if is_heading else None)


def _draw_table(header: Cells, rows: Sequence[Cells], right: Sequence[bool]) -> None:
    """Draw a table; too wide, one of numbers is turned or cut, one of words becomes a list."""
    from rich.console import Console

    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDEST_PIPED)
    is_plain = not console.is_terminal
    if not any(right) and (is_plain or not _fits(_find_narrowest(header, rows), console.width)):
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
    if not console.is_terminal:
        print(align_columns(header, rows, words=list(right).index(True)))
        return
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


def _fits(lines: Sequence[Cells], width: int, gap: int = len(GAP)) -> bool:
    return sum(_measure_columns(lines)) + gap * (len(lines[0]) - 1) <= width


def _cut_columns(
    header: Cells, rows: Sequence[Cells], width: int, gap: int = len(GAP)
) -> list[list[int]]:
    """Places of columns for each part; every part begins with those that tell the rows apart."""
    lines = [header, *rows]
    keys = 1
    while keys < len(header) - 1 and len({tuple(row[:keys]) for row in rows}) < len(rows):
        keys += 1
    parts = [list(range(keys))]
    for place in range(keys, len(header)):
        wider = [*parts[-1], place]
        if len(parts[-1]) > keys and not _fits(
            [[c[at] for at in wider] for c in lines], width, gap
        ):
            wider = [*range(keys), place]
            parts.append(wider)
        parts[-1] = wider
    return parts


def _turn(header: Cells, rows: Sequence[Cells]) -> tuple[Cells, Sequence[Cells]]:
    """Make rows of columns."""
    first, *others = zip(header, *rows, strict=True)
    return first, others
