"""The report as Markdown tables."""

from __future__ import annotations

from tokencover.evaluation.report.notes import describe_results, explain_paper, explain_table
from tokencover.evaluation.report.paper_comparison import compare_with_paper, find_paper_model
from tokencover.evaluation.report.verdict import write_verdict
from tokencover.evaluation.result_rows import list_troubles, list_warnings
from tokencover.evaluation.results import Results
from tokencover.evaluation.table_formats import as_markdown, escape_markdown, write_markdown


def make_markdown(stored: Results, reference: str = "mob") -> str:
    """The comparison, what it means, and the paper's numbers if there are any."""
    table = stored.compare(reference)
    parts = [
        f"# Pruning visual tokens of {escape_markdown(stored.title)}",
        *(f"**Warning.** {escape_markdown(each)}" for each in list_warnings(stored.rows)),
        *filter(None, [escape_markdown(" ".join(write_verdict(stored)))]),
        escape_markdown(describe_results(stored)),
        as_markdown(table),
        *map(escape_markdown, [*explain_table(table), *list_troubles(stored.rows)]),
        *_write_paper(stored),
    ]
    return "\n\n".join(parts) + "\n"


def _write_paper(stored: Results) -> list[str]:
    found = compare_with_paper(stored)
    if not found:
        return []
    names = ["Avg. %", *found[0].scores]
    header = ["method", "dropped %"]
    header += [f"{escape_markdown(name)} ({who})" for name in names for who in ("paper", "here")]
    rows = []
    for each in sorted(found, key=lambda each: each.paper.reduction):
        pairs = [(f"{each.paper.printed_average:g}", each.average), *each.scores.values()]
        numbers = [text for pair in pairs for text in pair]
        rows.append([escape_markdown(each.name), f"{each.paper.reduction:g}", *numbers])
    title = f"## The paper's numbers for {find_paper_model(stored.model)}"
    return [title, *map(escape_markdown, explain_paper(stored)), write_markdown(header, rows)]
