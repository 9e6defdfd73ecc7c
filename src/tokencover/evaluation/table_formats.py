"""The table of results as Markdown, CSV or LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from html import escape
from typing import Final

from tokencover.evaluation.result_rows import ResultRow, list_troubles
from tokencover.evaluation.results_table import NOTHING, Rank, ResultsTable, TableCell, make_table

FIRST_COLUMNS: Final = ("method", "budget")
"""Columns before those of the cells."""
MARKDOWN_RANKS: Final = {Rank.NONE: "{}", Rank.BEST: "**{}**", Rank.SECOND: "<u>{}</u>"}
HTML_RANKS: Final = {Rank.NONE: "{}", Rank.BEST: "<b>{}</b>", Rank.SECOND: "<u>{}</u>"}
LATEX_RANKS: Final = {
    Rank.NONE: "{}",
    Rank.BEST: r"\textbf{{{}}}",
    Rank.SECOND: r"\underline{{{}}}",
}
LATEX_SIGNS: Final = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def render(rows: Sequence[ResultRow], reference: str = "mob") -> str:
    """What a finished evaluation prints: the table in Markdown, and what it means.

    Parameters
    ----------
    rows : sequence of ResultRow
        In the order of the table.
    reference : str
        The method, by its label or name, that others are compared with at the same budget.
    """
    summary = next((row.summary for row in rows if row.summary is not None), None)
    groups, tasks = ([], []) if summary is None else (list(summary.groups), list(summary.accuracy))
    table = make_table(rows, groups, tasks, reference).without_ranks()
    return "\n\n".join([as_markdown(table), " ".join(table.notes.values()), *list_troubles(rows)])


def as_markdown(table: ResultsTable) -> str:
    """A Markdown table; the best of a budget is bold, the second underlined."""
    rows = [[*map(escape_markdown, texts)] for texts in _list_heads(table)]
    for row, line in zip(rows, table.lines, strict=True):
        if line.remark:
            blank = [NOTHING] * (len(table.columns) - 1)
            row += [escape_markdown(line.remark), *blank]
        else:
            row += [_mark_markdown(cell) for cell in line.cells]
    return write_markdown([*FIRST_COLUMNS, *map(escape_markdown, table.header)], rows)


def as_csv(table: ResultsTable) -> str:
    """Comma-separated values, empty where there is no number; the last column has remarks."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*FIRST_COLUMNS, *table.header, "remark"])
    for head, line in zip(_list_heads(table), table.lines, strict=True):
        cells = [cell.text for cell in line.cells] or [NOTHING] * len(table.columns)
        shown = ["" if each == NOTHING else each for each in (*head, *cells)]
        writer.writerow([*shown, line.remark])
    return text.getvalue()


def as_latex(table: ResultsTable) -> str:
    """A LaTeX tabular that needs no package; budgets are divided by lines."""
    heading = [*map(escape_latex, (*FIRST_COLUMNS, *table.header))]
    rows = [f"\\begin{{tabular}}{{ll{'r' * len(table.columns)}}}", "\\hline"]
    rows.append(" & ".join(heading) + r" \\")
    budget = None
    for head, line in zip(_list_heads(table), table.lines, strict=True):
        if line.budget != budget:
            rows.append("\\hline")
            budget = line.budget
        cells = [_mark_latex(cell) for cell in line.cells]
        if line.remark:
            cells = [f"\\multicolumn{{{len(table.columns)}}}{{l}}{{{escape_latex(line.remark)}}}"]
        rows.append(" & ".join([*map(escape_latex, head), *cells]) + r" \\")
    return "\n".join([*rows, "\\hline", "\\end{tabular}"]) + "\n"


def write_markdown(header: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """A Markdown table whose first columns are words and whose others are numbers."""
    lines = [header, ["---"] * words + ["---:"] * (len(header) - words), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def escape_markdown(text: str) -> str:
    """Text that means nothing in Markdown or HTML."""
    return re.sub(r"[\\|<>*`]|(?<!\w)_|_(?!\w)|(?<=\])\(", r"\\\g<0>", text)


def escape_latex(text: str) -> str:
    """Text that means nothing in LaTeX."""
    return "".join(LATEX_SIGNS.get(letter, letter) for letter in text)


def _list_heads(table: ResultsTable) -> list[tuple[str, str]]:
    return [(line.label, line.budget or NOTHING) for line in table.lines]


def _mark_markdown(cell: TableCell) -> str:
    return MARKDOWN_RANKS[cell.rank].format(escape_markdown(cell.text))


def _mark_latex(cell: TableCell) -> str:
    return LATEX_RANKS[cell.rank].format(escape_latex(cell.text))


def as_html(table: ResultsTable) -> str:
    """A plain HTML table, for notebooks; the best of a budget is bold, the second underlined."""
    heads = "".join(f"<th>{escape(name)}</th>" for name in (*FIRST_COLUMNS, *table.header))
    rows = []
    for head, line in zip(_list_heads(table), table.lines, strict=True):
        cells = [HTML_RANKS[cell.rank].format(escape(cell.text)) for cell in line.cells]
        shown = "".join(f"<td>{cell}</td>" for cell in cells)
        if line.remark:
            shown = f'<td colspan="{len(table.columns)}">{escape(line.remark)}</td>'
        rows.append(f"<tr><th>{escape(head[0])}</th><td>{escape(head[1])}</td>{shown}</tr>")
    body = "\n".join(rows)
    return f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
