"""The table of results as Markdown, LaTeX or HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from tokencover.evaluation.columns import NOTHING, Rank, ResultsTable, TableCell, make_table
from tokencover.evaluation.scoring import ResultRow, list_missing
from tokencover.tables import TextTable, escape_markdown, write_markdown

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


def render(rows: Sequence[ResultRow], reference: str = "mob") -> TextTable:
    """Build the table that a finished evaluation prints, with its notes.

    `reference` is the label or name of the method that the others are compared with.
    """
    summary = next((row.summary for row in rows if row.summary is not None), None)
    groups, tasks = ([], []) if summary is None else (list(summary.groups), list(summary.accuracy))
    table = make_table(rows, groups, tasks, reference)
    return TextTable(
        (*FIRST_COLUMNS, *table.header),
        [
            [*head, *([cell.text for cell in line.cells] or _fill_remark(line.remark, table))]
            for head, line in zip(_list_heads(table), table.lines, strict=True)
        ],
        notes=[" ".join(table.notes.values()), *list_missing(rows)],
        markdown=True,
    )


def as_markdown(table: ResultsTable) -> str:
    """A Markdown table; the best of a budget is bold, the second underlined."""
    rows = []
    for head, line in zip(_list_heads(table), table.lines, strict=True):
        cells = [_mark(cell, MARKDOWN_RANKS, escape_markdown(cell.text)) for cell in line.cells]
        cells = cells or _fill_remark(escape_markdown(line.remark), table)
        rows.append([*map(escape_markdown, head), *cells])
    return write_markdown([*FIRST_COLUMNS, *map(escape_markdown, table.header)], rows)


def as_latex(table: ResultsTable) -> str:
    """A LaTeX tabular that needs no package; budgets are separated by lines."""
    heading = [*map(escape_latex, (*FIRST_COLUMNS, *table.header))]
    rows = [f"\\begin{{tabular}}{{ll{'r' * len(table.columns)}}}", "\\hline"]
    rows.append(" & ".join(heading) + r" \\")
    budget = None
    for head, line in zip(_list_heads(table), table.lines, strict=True):
        if line.budget != budget:
            rows.append("\\hline")
            budget = line.budget
        cells = [_mark(cell, LATEX_RANKS, escape_latex(cell.text)) for cell in line.cells]
        if line.remark:
            cells = [f"\\multicolumn{{{len(table.columns)}}}{{l}}{{{escape_latex(line.remark)}}}"]
        rows.append(" & ".join([*map(escape_latex, head), *cells]) + r" \\")
    return "\n".join([*rows, "\\hline", "\\end{tabular}"]) + "\n"


def as_html(table: ResultsTable) -> str:
    """A plain HTML table, for notebooks; the best of a budget is bold, the second underlined."""
    heads = "".join(f"<th>{escape(name)}</th>" for name in (*FIRST_COLUMNS, *table.header))
    rows = []
    for head, line in zip(_list_heads(table), table.lines, strict=True):
        cells = [_mark(cell, HTML_RANKS, escape(cell.text)) for cell in line.cells]
        body = "".join(f"<td>{cell}</td>" for cell in cells)
        if line.remark:
            body = f'<td colspan="{len(table.columns)}">{escape(line.remark)}</td>'
        rows.append(f"<tr><th>{escape(head[0])}</th><td>{escape(head[1])}</td>{body}</tr>")
    lines = "\n".join(rows)
    return f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{lines}\n</tbody>\n</table>"


def escape_latex(text: str) -> str:
    """Text without a special meaning in LaTeX."""
    return "".join(LATEX_SIGNS.get(letter, letter) for letter in text)


def _list_heads(table: ResultsTable) -> list[tuple[str, str]]:
    return [(line.label, line.budget or NOTHING) for line in table.lines]


def _fill_remark(remark: str, table: ResultsTable) -> list[str]:
    """The cells of a line without numbers."""
    return [remark, *[NOTHING] * (len(table.columns) - 1)]


def _mark(cell: TableCell, ranks: dict[Rank, str], text: str) -> str:
    return ranks[cell.rank].format(text)
