"""Tables for papers, laid out as those of the MoB paper: 1 to 3 and 5, 6, and 7.

The best of a column is on blue, the second on orange, as there. The tables need the packages that
their first line names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tokencover.evaluation.plan import Combination
from tokencover.evaluation.report.chart_rows import RIVALS, make_chart_rows
from tokencover.evaluation.report.latex_folds import make_fold_tables
from tokencover.evaluation.report.latex_parts import (
    GRAY,
    LatexBlock,
    wrap_blocks,
    write_cell,
    write_row,
)
from tokencover.evaluation.report.report_charts import shorten_names
from tokencover.evaluation.report.stored_ablations import StoredAblations
from tokencover.evaluation.result_rows import ResultRow
from tokencover.evaluation.results import Results
from tokencover.evaluation.results_table import TableLine, make_table, make_task_table
from tokencover.evaluation.table_formats import escape_latex

PACKAGES: Final = r"% \usepackage{booktabs,graphicx} \usepackage[table]{xcolor}"
AVERAGE: Final = "Avg. %"
OBJECTIVES: Final = {"both": "P V", "prompt": "P", "visual": "V", "none": "--"}
"""What a method preserves, as the paper's second column has it: prompt, vision, both."""


def make_latex(stored: Results, reference: str, ablations: StoredAblations) -> str:
    """All tables that the results have something to say in.

    Parameters
    ----------
    stored : Results
        What was evaluated.
    reference : str
        The method that is printed bold, and that shorter tables keep.
    ablations : StoredAblations
        For Table 6: what was found about the covering fold.
    """
    rows = make_chart_rows(stored, reference)
    parts = [PACKAGES]
    if len(rows.labels) > len(rows.shown):
        some = [
            row
            for row in stored.rows
            if row.combination.method is None or row.combination.label in rows.shown
        ]
        caption = f"Partial comparison on {stored.title}: {reference} and the {RIVALS} best others"
        parts.append(_make_comparison(stored, some, reference, caption, "partial"))
    caption = f"Comparison on {stored.title}"
    parts.append(_make_comparison(stored, stored.rows, reference, caption, "full"))
    parts += make_fold_tables(ablations.folds)
    return "\n\n".join(parts) + "\n"


def _make_comparison(
    stored: Results, rows: Sequence[ResultRow], reference: str, caption: str, label: str
) -> str:
    """Tables 1 and 5, or 2 and 3 if the tasks are of one group."""
    tasks = list(stored.groups)
    table = make_task_table(rows, tasks)
    whole = make_table(rows, list(dict.fromkeys(stored.groups.values())), tasks, reference)
    place = whole.header.index(AVERAGE)
    averages = {line.row.combination: line.cells[place : place + 1] for line in whole.lines}
    columns = len(tasks) + 3
    blocks = [
        LatexBlock(
            _head_section(stored, budget, columns),
            [
                _write_line(line, averages[line.row.combination], columns, reference)
                for line in lines
            ],
        )
        for budget, lines in table.sections.items()
    ]
    return wrap_blocks(
        blocks,
        header=_make_header(stored),
        columns=f"lc{'c' * len(tasks)}c",
        caption=f"{caption}. Accuracy in percent; Avg. is the mean of accuracy / accuracy of the "
        "unpruned model. Blue and orange mark the best and the second of a budget.",
        label=f"tab:comparison-{label}",
    )


def _make_header(stored: Results) -> list[str]:
    tasks = list(stored.groups)
    groups = list(dict.fromkeys(stored.groups.values()))
    names = [escape_latex(name) for name in shorten_names(tasks)]
    lines = []
    if len(groups) > 1:
        sizes = [sum(each == group for each in stored.groups.values()) for group in groups]
        headings = next((row.summary.headings for row in stored.rows if row.summary), {})
        spans = [
            rf"\multicolumn{{{size}}}{{c}}{{\textbf{{{escape_latex(headings.get(group, group))}}}}}"
            for group, size in zip(groups, sizes, strict=True)
        ]
        lines.append(write_row(["", "", *spans, ""]))
        starts = [3 + sum(sizes[:place]) for place in range(len(sizes))]
        lines.append(
            " ".join(
                rf"\cmidrule(lr){{{start}-{start + size - 1}}}"
                for start, size in zip(starts, sizes, strict=True)
            )
        )
    lines.append(write_row([r"\textbf{Method}", r"\textbf{Objectives}", *names, r"\textbf{Avg.}"]))
    return lines


def _head_section(stored: Results, budget: str, columns: int) -> str:
    unpruned = stored.unpruned
    tokens = None if unpruned is None or unpruned.summary is None else unpruned.summary.tokens
    told = r"\emph{w/o Pruning}" + ("" if tokens is None else f", $N={tokens:g}$")
    rate: float | None = 0.0
    if budget:
        number, _, mode = budget.partition(" ")
        told = rf"\emph{{Pruning budget}} $K={number}$ {escape_latex(mode)}".strip()
        rate = _find_rate(float(number), tokens) if not mode else None
    if rate is not None:
        told += rf"; \emph{{Token Reduction Rate}} = \textbf{{{rate:.1f}\%}}"
    model = escape_latex(stored.title)
    return write_row([rf"{GRAY} {model}", rf"\multicolumn{{{columns - 1}}}{{c}}{{{told}}}"])


def _find_rate(budget: float, tokens: float | None) -> float | None:
    """Percent of the visual tokens that a budget drops."""
    if budget < 1:
        return 100 * (1 - budget)
    return None if not tokens else 100 * (1 - budget / tokens)


def _write_line(line: TableLine, average: Sequence[object], columns: int, reference: str) -> str:
    combination = line.row.combination
    first = [_name_method(combination, reference), _tell_objective(combination)]
    if line.remark:
        remark = escape_latex(line.remark)
        return write_row([*first, rf"\multicolumn{{{columns - 2}}}{{l}}{{{remark}}}"])
    cells = [write_cell(cell.text, cell.rank) for cell in line.cells]
    cells += [write_cell(cell.text, cell.rank, r"\%") for cell in average]  # type: ignore[attr-defined]
    if combination.method is None:
        return write_row([rf"\textcolor{{gray}}{{{text}}}" for text in [*first, *cells]])
    return write_row([*first, *cells])


def _name_method(combination: Combination, reference: str) -> str:
    """As people call the method, with its year, and its settings where they are not the usual."""
    method = combination.method
    if method is None:
        return "Vanilla"
    card = method.card
    _, _, settings = combination.label.partition(":")
    year = "" if card.year is None else f" ({card.year})"
    title = escape_latex(card.title)
    if combination.goes_by(reference):
        title = rf"\textbf{{{title}}}"
    return title + year + (f", {escape_latex(settings)}" if settings else "")


def _tell_objective(combination: Combination) -> str:
    return "--" if combination.method is None else OBJECTIVES[combination.method.card.objective]
