"""Rows, cells and frames of LaTeX tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tokencover.evaluation.results_table import NOTHING, Rank
from tokencover.evaluation.table_formats import escape_latex

GRAY: Final = r"\rowcolor{gray!15}"
LATEX_COLORS: Final = {Rank.BEST: "blue!10", Rank.SECOND: "orange!15"}
"""The paper's: blue for the best, orange for the second."""
MOST_LINES: Final = 56
"""Of a table that fits on a page."""


@dataclass(frozen=True, slots=True)
class LatexBlock:
    """Lines of a table that belong together, under a heading of their own."""

    heading: str
    lines: list[str]


def write_row(cells: Sequence[str]) -> str:
    """A row of a table."""
    return " & ".join(cells) + r" \\"


def write_cell(text: str, rank: Rank = Rank.NONE, unit: str = "") -> str:
    """A number on the ground of its rank."""
    shown = escape_latex(text) + ("" if text == NOTHING else unit)
    color = LATEX_COLORS.get(rank)
    return shown if color is None else rf"\cellcolor{{{color}}}{{{shown}}}"


def wrap_blocks(
    blocks: Sequence[LatexBlock],
    *,
    header: Sequence[str],
    columns: str,
    caption: str,
    label: str,
) -> str:
    """Tables of blocks that fit on a page each; the later ones are marked as continued.

    Parameters
    ----------
    blocks : sequence of LatexBlock
        What the tables hold.
    header : sequence of str
        Rows above them, in every table.
    columns : str
        How columns are aligned, as ``tabular`` takes it.
    caption, label : str
        Below the tables; the caption is plain text.
    """
    pages: list[list[LatexBlock]] = [[]]
    for block in blocks:
        used = sum(len(each.lines) + 1 for each in pages[-1])
        if pages[-1] and used + len(block.lines) + 1 > MOST_LINES:
            pages.append([])
        pages[-1].append(block)
    tables = []
    for number, page in enumerate(pages):
        body = [r"\midrule" + "\n" + "\n".join([block.heading, *block.lines]) for block in page]
        told = escape_latex(caption if not number else f"{caption} (Continued.)")
        tables.append(
            "\n".join(
                [
                    r"\begin{table*}[t]",
                    r"\centering\scriptsize",
                    r"\resizebox{\linewidth}{!}{%",
                    rf"\begin{{tabular}}{{{columns}}}",
                    r"\toprule",
                    *header,
                    *body,
                    r"\bottomrule",
                    r"\end{tabular}}",
                    rf"\caption{{{told}}}",
                    rf"\label{{{label}{f'-{number + 1}' if number else ''}}}",
                    r"\end{table*}",
                ]
            )
        )
    return "\n\n".join(tables)
