"""Tables: drawn on a terminal, aligned text or Markdown everywhere else."""

from __future__ import annotations

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
"""One row. More lines of a first cell are remarks, written below the row."""

GAP = "  "
LONGEST_CELL = 60
"""Letters of a cell in a table that is divided; the first cell, a name, is never cut."""
WIDEST_PIPED = 119
"""Columns of a table that goes to a file or another program."""
LEAST_FOR_SENTENCES = 24
"""Letters of a first column in which sentences can be read."""


@dataclass(frozen=True)
class TextTable:
    """A table for people; as a string it is plain text, or with `markdown` Markdown.

    The first `words` columns contain words; the others contain numbers and are aligned to the
    right. `above` is a line above the table, `notes` are lines below it.
    """

    header: Cells
    rows: Sequence[Cells]
    words: int = 1
    above: str = ""
    notes: Sequence[str] = ()
    markdown: bool = False

    def __str__(self) -> str:
        if self.markdown:
            above = [f"# {escape_markdown(self.above)}"] if self.above else []
            header, rows = _escape_cells([self.header])[0], _escape_cells(self.rows)
            return "\n\n".join([*above, write_markdown(header, rows, self.words), *self.notes])
        above = [self.above, ""] if self.above else []
        below = ["", *self.notes] if self.notes else []
        lines = [*above, align_columns(self.header, self.rows, words=self.words), *below]
        return "\n".join(lines)


def print_table(*tables: TextTable) -> None:
    """Print tables: drawn on a terminal, as text or Markdown elsewhere."""
    for index, table in enumerate(tables):
        if index:
            print()
        if table.markdown:
            _print_table(table)
        else:
            _print_text_table(table)


def _print_text_table(table: TextTable) -> None:
    if not sys.stdout.isatty() and _measure_lines(str(table).splitlines()) <= WIDEST_PIPED:
        print(table)
        return
    if table.above:
        print_text(table.above)
        print()
    right = [index >= table.words for index in range(len(table.header))]
    _draw_table(table.header, table.rows, right)
    if table.notes:
        print_text("\n".join(["", *table.notes]))


def _print_table(table: TextTable) -> None:
    """Draw the table on a terminal; print Markdown elsewhere, wide tables divided."""
    is_terminal = sys.stdout.isatty()
    if table.above:
        heading = f"# {escape_markdown(table.above)}"
        _wrap_paragraphs([table.above if is_terminal else heading, ""], bold=is_terminal)
    if is_terminal:
        columns = zip(*table.rows, strict=True)
        right = [
            index >= table.words or all(re.match(r"[-+]?\d|-$", cell) for cell in column)
            for index, column in enumerate(columns)
        ]
        _draw_table(table.header, table.rows, right)
    else:
        marks = _list_marks(len(table.header), table.words)
        header, *rows = _escape_cells([table.header, *table.rows])
        print("\n".join(_divide_markdown([header, marks, *rows])))
    _wrap_paragraphs(line for note in table.notes for line in ["", *note.splitlines()])


def write_markdown(header: Cells, rows: Sequence[Cells], words: int = 1) -> str:
    """Write a Markdown table of escaped cells; columns after the first `words` are numbers."""
    return "\n".join(_join_cells([header, _list_marks(len(header), words), *rows]))


def escape_markdown(text: str) -> str:
    """Return text without a special meaning in Markdown or HTML."""
    return re.sub(r"[\\|<>*`]|(?<!\w)_|_(?!\w)|(?<=\])\(", r"\\\g<0>", text)


def _escape_cells(lines: Sequence[Cells]) -> list[list[str]]:
    return [[escape_markdown(cell) for cell in cells] for cells in lines]


def _list_marks(columns: int, words: int) -> list[str]:
    return ["---"] * words + ["---:"] * (columns - words)


def _join_cells(lines: Sequence[Cells]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print names and values line by line; long values are wrapped, empty ones left out."""
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


def _divide_markdown(lines: list[list[str]]) -> list[str]:
    """Divide a table that is too wide; every part begins with the columns that identify a row."""
    whole = _join_cells(lines)
    if _measure_lines(whole) <= WIDEST_PIPED:
        return whole
    full_texts = []
    for cells in lines:
        for index, cell in enumerate(cells[1:], start=1):
            if len(cell) > LONGEST_CELL:
                cells[index] = textwrap.shorten(cell, LONGEST_CELL, placeholder=" ...")
                full_texts += [
                    "",
                    *textwrap.wrap(f"{' '.join(cells[:index])}: {cell}", WIDEST_PIPED),
                ]
    parts = [list(range(len(lines[0])))]
    if _measure_lines(_join_cells(lines)) > WIDEST_PIPED:
        parts = _cut_columns(lines[0], lines[2:], WIDEST_PIPED - len("|  |"), gap=len(" | "))
    divided = []
    for part in parts:
        divided += [*_join_cells([[cells[at] for at in part] for cells in lines]), ""]
    return divided[:-1] + full_texts


def _wrap_paragraphs(lines: Iterable[str], *, bold: bool = False) -> None:
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
        console.print(line, markup=False, style="bold" if bold else None)


def _draw_table(header: Cells, rows: Sequence[Cells], right: Sequence[bool]) -> None:
    """Draw a table; if too wide, numbers are transposed or cut, words become a list."""
    from rich.console import Console

    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDEST_PIPED)
    is_plain = not console.is_terminal
    if not any(right) and (is_plain or not _fits(_compute_narrowest(header, rows), console.width)):
        _draw_list(console, header, rows)
        return
    if not any(right) or _fits([header, *rows], console.width):
        _draw_part(console, header, rows, right)
        return
    turned_header, *turned_rows = zip(header, *rows, strict=True)  # transposed
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
    """Draw rows as blocks with one line per cell."""
    from rich.text import Text

    for cells in rows:
        first, line, remarks = cells[0].partition("\n")
        console.print(Text.assemble((first, "bold cyan"), (line + remarks, "dim")))
        for name, cell in zip(header[1:], cells[1:], strict=True):
            if cell:
                console.print(Text.assemble((f"{GAP}{name}: ", "bold"), cell))


def _compute_narrowest(header: Cells, rows: Sequence[Cells]) -> list[list[str]]:
    """A line with the least column widths that break no words."""
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
    """Column indices of each part; every part begins with the columns that identify a row."""
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
