"""The report as one HTML page that needs nothing else: no script, no font, no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from tokencover.budget import Profile
from tokencover.evaluation.report.figures import (
    RIVALS,
    draw_couplings,
    draw_radars,
    draw_trade_offs,
)
from tokencover.evaluation.report.notes import describe_results, explain_paper, explain_table
from tokencover.evaluation.report.paper_comparison import (
    PaperComparison,
    compare_with_paper,
    find_paper_model,
)
from tokencover.evaluation.result_rows import list_troubles
from tokencover.evaluation.results import Results
from tokencover.evaluation.results_table import (
    Rank,
    ResultsTable,
    TableLine,
)

STYLE: Final = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif;
  color: #1f2328; background: #fff; max-width: 72rem; margin: 2.5rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; }
p, li { max-width: 46rem; }
.facts, caption, .note { color: #59636e; font-size: .9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .7rem; text-align: right; white-space: nowrap; }
th { font-weight: 600; vertical-align: bottom; }
thead th { border-bottom: 2px solid #1f2328; }
th[scope=row], .words { text-align: left; }
th[scope=row] { font-weight: 400; }
.remark { color: #59636e; text-align: left; white-space: normal; }
tbody th[scope=rowgroup] { text-align: left; padding-top: .9rem; border-bottom: 1px solid #d8dee4; }
tr.reference { background: #fdf3f4; }
.best { font-weight: 700; }
.second { text-decoration: underline; text-underline-offset: 2px; }
.paper { background: #f4f6f8; }
.charts { display: flex; flex-wrap: wrap; gap: 1.2rem; }
svg { max-width: 100%; height: auto; }
summary { cursor: pointer; }
"""


def make_page(
    stored: Results,
    *,
    reference: str = "mob",
    profile: Profile | None = None,
    pictures: Sequence[str] = (),
) -> str:
    """The whole page.

    Parameters
    ----------
    stored : Results
        What to show.
    reference : str
        The method that the others are compared with.
    profile : Profile, optional
        How coupling is distributed.
    pictures : sequence of str
        Pieces of a web page that show what was kept, see `draw_kept_pictures`.
    """
    table = stored.compare(reference)
    parts = [
        f"<h1>Pruning visual tokens of {escape(stored.model)}</h1>",
        f'<p class="facts">{escape(describe_results(stored))}</p>',
        "<h2>Comparison</h2>",
        _write_table(table, reference),
        *[f'<p class="note">{escape(note)}</p>' for note in explain_table(table)],
        *[f'<p class="note">{escape(note)}</p>' for note in list_troubles(stored.rows)],
        "<details><summary>Accuracy task by task</summary>",
        _write_table(stored.compare_tasks(), reference),
        "</details>",
        *_write_figures("Accuracy against cost", draw_trade_offs(stored, reference), ""),
        *_write_figures(
            "Task by task, relative to the unpruned model",
            draw_radars(stored, reference),
            f"In percent of the unpruned model's accuracy; {reference} and the {RIVALS} others "
            "with the best Avg. of each budget. The middle need not be 0.",
        ),
        *_write_figures(
            "What was kept",
            pictures,
            f"{reference} at its smallest budget, on the first example of some tasks. Point at a "
            "token: its title says where it lies, when it was chosen, and the word that chose it.",
        ),
        *_write_coupling(profile),
        *_write_paper(stored),
    ]
    return make_document(f"Pruning visual tokens of {stored.model}", "\n".join(parts))


def make_document(title: str, body: str) -> str:
    """A page with the style that all have."""
    head = (
        '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, '
        f'initial-scale=1">\n<title>{escape(title)}</title>\n<style>{STYLE}</style>'
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n'
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def make_html_table(header: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """A plain table; its first column names its rows, and some columns are words, not numbers."""
    kinds = [' class="words"' if column < words else "" for column in range(len(header))]
    pairs = zip(header, kinds, strict=True)
    heads = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in pairs)
    lines = [
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(
            f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(row[1:], kinds[1:], strict=True)
        )
        + "</tr>"
        for row in rows
    ]
    parts = [f"<thead><tr>{heads}</tr></thead>", "<tbody>", *lines, "</tbody>"]
    return '<div class="wide"><table>\n' + "\n".join(parts) + "\n</table></div>"


def _write_table(table: ResultsTable, reference: str) -> str:
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.header)
    parts = [f'<thead><tr><th scope="col"></th>{heads}</tr></thead>']
    width = len(table.columns) + 1
    for budget, lines in table.sections.items():
        name = f"budget {budget}" if budget else "all tokens"
        rows = [f'<tr><th scope="rowgroup" colspan="{width}">{escape(name)}</th></tr>']
        rows += [_write_line(line, width, reference) for line in lines]
        parts.append("<tbody>\n" + "\n".join(rows) + "\n</tbody>")
    return '<div class="wide"><table>\n' + "\n".join(parts) + "\n</table></div>"


def _write_line(line: TableLine, width: int, reference: str) -> str:
    cells = [
        f'<td class="{cell.rank.value}">{escape(cell.text)}</td>'
        if cell.rank is not Rank.NONE
        else f"<td>{escape(cell.text)}</td>"
        for cell in line.cells
    ]
    if line.remark:
        cells = [f'<td class="remark" colspan="{width - 1}">{escape(line.remark)}</td>']
    kind = ' class="reference"' if line.row.combination.goes_by(reference) else ""
    return f'<tr{kind}><th scope="row">{escape(line.label)}</th>{"".join(cells)}</tr>'


def _write_figures(title: str, charts: Sequence[str], note: str) -> list[str]:
    if not charts:
        return []
    words = [f'<p class="note">{escape(note)}</p>'] if note else []
    drawn = '<div class="charts">\n' + "\n".join(charts) + "\n</div>"
    return [f"<h2>{escape(title)}</h2>", *words, drawn]


def _write_coupling(profile: Profile | None) -> list[str]:
    if profile is None:
        return []
    note = (
        f"Hausdorff distance between prompt and picture of {profile.count} samples, measured in "
        f"{profile.model} after {profile.after} decoder blocks; small is strong coupling. "
    )
    verdict = (
        "Two groups, divided at τ."
        if profile.separated
        else f"Not two groups: {profile.objection}."
    )
    return _write_figures("Coupling of prompt and picture", draw_couplings(profile), note + verdict)


def _write_paper(stored: Results) -> list[str]:
    found = compare_with_paper(stored)
    if not found:
        return []
    benchmarks = list(found[0].scores)
    doubled = [f"{name} ({who})" for name in ["Avg. %", *benchmarks] for who in ("paper", "here")]
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in doubled)
    rows = [f'<thead><tr><th scope="col"></th>{heads}</tr></thead>']
    for reduction in sorted({each.paper.reduction for each in found}):
        name = f"{reduction:g} % of the tokens dropped" if reduction else "all tokens"
        width = len(doubled) + 1
        rows.append(f'<tbody>\n<tr><th scope="rowgroup" colspan="{width}">{name}</th></tr>')
        rows += [_write_comparison(each) for each in found if each.paper.reduction == reduction]
        rows.append("</tbody>")
    table = '<div class="wide"><table>\n' + "\n".join(rows) + "\n</table></div>"
    notes = [f'<p class="note">{escape(note)}</p>' for note in explain_paper(stored)]
    return [f"<h2>The paper's numbers for {escape(find_paper_model(stored.model) or '')}</h2>",
            *notes, table]  # fmt: skip


def _write_comparison(each: PaperComparison) -> str:
    pairs = [(f"{each.paper.printed_average:g}", each.average), *each.scores.values()]
    cells = "".join(
        f'<td class="paper">{escape(printed)}</td><td>{escape(ours)}</td>'
        for printed, ours in pairs
    )
    return f'<tr><th scope="row">{escape(each.name)}</th>{cells}</tr>'
