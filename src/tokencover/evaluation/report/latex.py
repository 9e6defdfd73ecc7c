"""LaTeX tables in the layout of the MoB paper's Tables 1 to 3 and 5.

The best of a column is on blue, the second on orange. The tables need the packages that their first
line names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tokencover.evaluation.columns import (
    NOTHING,
    Rank,
    TableCell,
    TableLine,
    make_table,
    make_task_table,
)
from tokencover.evaluation.formats import escape_latex
from tokencover.evaluation.plan import Combination
from tokencover.evaluation.report.report_charts import RIVALS, make_chart_rows, shorten_names
from tokencover.evaluation.results import Results
from tokencover.evaluation.scoring import ResultRow

PACKAGES: Final = r"% \usepackage{booktabs,graphicx} \usepackage[table]{xcolor}"
AVERAGE: Final = "Avg. %"
OBJECTIVES: Final = {"both": "P V", "prompt": "P", "visual": "V", "none": "--"}
"""What a method preserves, as in the paper's second column: prompt, vision, both."""
GRAY: Final = r"\rowcolor{gray!15}"
LATEX_COLORS: Final = {Rank.BEST: "blue!10", Rank.SECOND: "orange!15"}
"""As in the paper."""
MOST_LINES: Final = 56
"""Lines of a table that fits on a page."""


def make_latex(stored: Results, reference: str) -> str:
    """Write the comparison, and a shorter one if there are many methods.

    The reference is printed bold, and the shorter table keeps it.
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
    return "\n\n".join(parts) + "\n"


def _make_comparison(
    stored: Results, rows: Sequence[ResultRow], reference: str, caption: str, label: str
) -> str:
    """Tables 1 and 5, or 2 and 3 if the tasks are of one group."""
    tasks = list(stored.groups)
    table = make_task_table(rows, tasks)
    whole = make_table(rows, list(dict.fromkeys(stored.groups.values())), tasks, reference)
    index = whole.header.index(AVERAGE)
    averages = {line.row.combination: line.cells[index : index + 1] for line in whole.lines}
    columns = len(tasks) + 3
    blocks = [
        [
            _head_section(stored, budget, columns),
            *(
                _write_line(each, averages[each.row.combination], columns, reference)
                for each in lines
            ),
        ]
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
        starts = [3 + sum(sizes[:index]) for index in range(len(sizes))]
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
    text = r"\emph{w/o Pruning}" + ("" if tokens is None else f", $N={tokens:g}$")
    rate: float | None = 0.0
    if budget:
        number, _, mode = budget.partition(" ")
        text = rf"\emph{{Pruning budget}} $K={number}$ {escape_latex(mode)}".strip()
        rate = _compute_rate(float(number), tokens) if not mode else None
    if rate is not None:
        text += rf"; \emph{{Token Reduction Rate}} = \textbf{{{rate:.1f}\%}}"
    model = escape_latex(stored.title)
    return write_row([rf"{GRAY} {model}", rf"\multicolumn{{{columns - 1}}}{{c}}{{{text}}}"])


def _compute_rate(budget: float, tokens: float | None) -> float | None:
    """Percentage of visual tokens that a budget drops."""
    if budget < 1:
        return 100 * (1 - budget)
    return None if not tokens else 100 * (1 - budget / tokens)


def _write_line(line: TableLine, average: Sequence[TableCell], columns: int, reference: str) -> str:
    combination = line.row.combination
    objective = "--" if combination.method is None else combination.method.card.objective
    first = [_name_method(combination, reference), OBJECTIVES.get(objective, "--")]
    if line.remark:
        remark = escape_latex(line.remark)
        return write_row([*first, rf"\multicolumn{{{columns - 2}}}{{l}}{{{remark}}}"])
    cells = [write_cell(cell.text, cell.rank) for cell in line.cells]
    cells += [write_cell(cell.text, cell.rank, r"\%") for cell in average]
    if combination.method is None:
        return write_row([rf"\textcolor{{gray}}{{{text}}}" for text in [*first, *cells]])
    return write_row([*first, *cells])


def _name_method(combination: Combination, reference: str) -> str:
    """The method's title, its year, and the settings that are not defaults."""
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


# ---- rows, cells and frames -----------------------------------------------------------------


def write_row(cells: Sequence[str]) -> str:
    """A row of a table."""
    return " & ".join(cells) + r" \\"


def write_cell(text: str, rank: Rank = Rank.NONE, unit: str = "") -> str:
    """A number on the color of its rank."""
    shown = escape_latex(text) + ("" if text == NOTHING else unit)
    color = LATEX_COLORS.get(rank)
    return shown if color is None else rf"\cellcolor{{{color}}}{{{shown}}}"


def wrap_blocks(
    blocks: Sequence[Sequence[str]],
    *,
    header: Sequence[str],
    columns: str,
    caption: str,
    label: str,
) -> str:
    """Write tables of blocks that fit on a page; the later ones are marked as continued.

    A block has lines, the first of which is its heading. `header` has rows above every table,
    `columns` the alignment for ``tabular``; the caption is plain text.
    """
    pages: list[list[Sequence[str]]] = [[]]
    for block in blocks:
        if pages[-1] and sum(map(len, pages[-1])) + len(block) > MOST_LINES:
            pages.append([])
        pages[-1].append(block)
    tables = []
    for number, page in enumerate(pages):
        body = ["\n".join([r"\midrule", *block]) for block in page]
        text = escape_latex(caption if not number else f"{caption} (Continued.)")
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
                    rf"\caption{{{text}}}",
                    rf"\label{{{label}{f'-{number + 1}' if number else ''}}}",
                    r"\end{table*}",
                ]
            )
        )
    return "\n\n".join(tables)
