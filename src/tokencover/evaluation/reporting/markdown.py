"""The report as Markdown tables."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tokencover.evaluation.report import NOTHING
from tokencover.evaluation.reporting.comparison import Cell, Comparison, Mark, compare
from tokencover.evaluation.reporting.notes import how_to_read, paper_notes, run_facts, troubles
from tokencover.evaluation.reporting.published import beside, paper_model
from tokencover.evaluation.reporting.stored import Stored

AROUND = {Mark.NONE: ("", ""), Mark.BEST: ("**", "**"), Mark.SECOND: ("<u>", "</u>")}


def markdown(stored: Stored, reference: str = "mob") -> str:
    """The comparison, what it means, and the paper's numbers if there are any."""
    parts = [
        f"# Pruning visual tokens of {plain(stored.model)}",
        plain(run_facts(stored)),
        _comparison(compare(stored, reference)),
        *map(plain, [*how_to_read(reference), *troubles(stored)]),
        *_paper(stored),
    ]
    return "\n\n".join(parts) + "\n"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """A table whose first columns are words and whose others are numbers."""
    lines = [header, ["---"] * words + ["---:"] * (len(header) - words), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def plain(text: str) -> str:
    """Text that means nothing in Markdown or HTML."""
    return re.sub(r"[\\|<>*`]|(?<!\w)_|_(?!\w)|(?<=\])\(", r"\\\g<0>", text)


def _comparison(comparison: Comparison) -> str:
    rows = []
    for section in comparison.sections:
        for line in section.lines:
            head = [plain(line.row.combination.label), plain(section.budget) or NOTHING]
            blank = [NOTHING] * (len(comparison.columns) - 1)
            cells = [plain(line.remark), *blank] if line.remark else [*map(_cell, line.cells)]
            rows.append([*head, *cells])
    return table(["method", "budget", *map(plain, comparison.columns)], rows)


def _cell(cell: Cell) -> str:
    before, behind = AROUND[cell.mark]
    return f"{before}{plain(cell.text)}{behind}"


def _paper(stored: Stored) -> list[str]:
    found = beside(stored)
    if not found:
        return []
    names = ["Avg. %", *found[0].scores]
    header = ["method", "dropped %"]
    header += [f"{plain(name)} ({who})" for name in names for who in ("paper", "here")]
    rows = []
    for each in sorted(found, key=lambda each: each.paper.reduction):
        pairs = [(f"{each.paper.printed_average:g}", each.average), *each.scores.values()]
        numbers = [text for pair in pairs for text in pair]
        rows.append([plain(each.name), f"{each.paper.reduction:g}", *numbers])
    title = f"## The paper's numbers for {paper_model(stored.model)}"
    return [title, *map(plain, paper_notes(stored)), table(header, rows)]
