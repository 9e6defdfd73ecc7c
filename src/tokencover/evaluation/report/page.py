"""The report as one HTML page that needs nothing else: scripts and charts are inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tokencover.budget import Profile
from tokencover.evaluation.report.ablation_figures import make_ablation_figures
from tokencover.evaluation.report.answer_changes import collect_answers
from tokencover.evaluation.report.chart_looks import Look, choose_looks
from tokencover.evaluation.report.chart_rows import RIVALS, ChartRows, make_chart_rows
from tokencover.evaluation.report.kept_pictures import KeptExample
from tokencover.evaluation.report.notes import (
    RANKS_NOTE,
    explain_paper,
    list_facts,
)
from tokencover.evaluation.report.other_run import compare_runs
from tokencover.evaluation.report.page_templates import render_page
from tokencover.evaluation.report.paper_comparison import compare_with_paper, find_paper_model
from tokencover.evaluation.report.report_charts import (
    make_cost_charts,
    make_coupling_charts,
    make_radars,
)
from tokencover.evaluation.report.stored_ablations import StoredAblations, find_ablations
from tokencover.evaluation.report.task_costs import make_task_costs
from tokencover.evaluation.report.vega_charts import Specification
from tokencover.evaluation.report.verdict import SIGNIFICANCE_NOTE, summarize_budgets, write_verdict
from tokencover.evaluation.result_rows import list_troubles, list_warnings
from tokencover.evaluation.results import Results

PARTS: Final = {
    "cost": "Accuracy against cost",
    "tasks": "Task by task",
    "changed": "Lost and won",
    "kept": "What was kept",
    "coupling": "Coupling",
    "ablations": "Settings of MoB",
    "other-run": "Another run",
    "paper": "The paper's numbers",
}
"""Names of the page's parts after the first, by their place on it."""

PAGE_TEXTS: Final = {
    "rivals": RIVALS,
    "ranks_note": RANKS_NOTE,
    "significance_note": SIGNIFICANCE_NOTE,
    "pictures_note": (
        "Point at a token, or tap it: its text says where it lies, when it was chosen, and the "
        "word that chose it."
    ),
}
"""What every page says alike."""


def make_page(
    stored: Results,
    *,
    reference: str = "mob",
    profile: Profile | None = None,
    pictures: Sequence[KeptExample] = (),
    other: Results | None = None,
    ablations: StoredAblations | None = None,
    command: str = "",
    evaluated_by: Sequence[str] = (),
    date: str = "",
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
    pictures : sequence of KeptExample
        What was kept of some examples, see `draw_kept_pictures`.
    other : Results, optional
        Another run to compare with.
    ablations : StoredAblations, optional
        What settings of MoB do; those among the results if not given.
    command, date : str
        The command that wrote the page, and when.
    evaluated_by : sequence of str
        The commands that wrote the results.
    """
    reference = _resolve_reference(stored, reference)
    table = stored.compare(reference)
    rows = make_chart_rows(stored, reference)
    looks = choose_looks(rows.labels)
    looks = {label: looks[label] for label in rows.labels}
    charts = _collect_charts(stored, rows, looks, profile, ablations or find_ablations(stored))
    answers, paper = collect_answers(stored, other), _tabulate_paper(stored)
    several = bool(answers["methods"][1:])
    shown = {**charts, "changed": several, "kept": pictures, "other-run": other, "paper": paper}
    return render_page(
        "report.html.j2",
        **_summarize(stored, reference),
        parts=[("comparison", "Comparison"), *((key, PARTS[key]) for key in PARTS if shown[key])],
        **{"command": command, "evaluated_by": evaluated_by, "date": date},
        reference=reference,
        **PAGE_TEXTS,
        rows=rows,
        looks=looks,
        table=table,
        task_table=stored.compare_tasks(),
        notes=[*table.notes.values(), *list_troubles(stored.rows)],
        **_name_charts(charts),
        coupling_note="" if profile is None else _explain_coupling(profile),
        answers=answers if several else None,
        mine=_find_method(answers, reference),
        pictures=list(pictures),
        other_run=None if other is None else compare_runs(stored, other),
        paper=paper,
    )


def _summarize(stored: Results, reference: str) -> dict[str, Any]:
    """The top of the page."""
    return {
        "title": f"Pruning visual tokens of {stored.title}",
        "warnings": list_warnings(stored.rows),
        "verdict": write_verdict(stored),
        "summary": summarize_budgets(stored, reference),
        "facts": list_facts(stored),
    }


def _collect_charts(
    stored: Results,
    rows: ChartRows,
    looks: dict[str, Look],
    profile: Profile | None,
    ablations: StoredAblations,
) -> dict[str, dict[str, Specification]]:
    """The charts of the page by its parts."""
    costs = make_cost_charts(rows, looks)
    task_costs = make_task_costs(stored, rows, looks) if costs else {}
    return {
        "cost": costs,
        "cost by task": dict(list(task_costs.items())[:1]),
        "tasks": make_radars(stored, rows, looks),
        "coupling": {} if profile is None else make_coupling_charts(profile),
        "ablations": make_ablation_figures(ablations, profile),
    }


def _name_charts(charts: dict[str, dict[str, Specification]]) -> dict[str, Any]:
    """The charts as the template takes them: all of them, and the names of each part's."""
    return {
        "charts": {name: chart for each in charts.values() for name, chart in each.items()},
        "cost_charts": list(charts["cost"]),
        "task_costs": list(charts["cost by task"]),
        "radars": list(charts["tasks"]),
        "couplings": list(charts["coupling"]),
        "ablation_charts": list(charts["ablations"]),
    }


def make_figures(
    stored: Results,
    *,
    reference: str = "mob",
    profile: Profile | None = None,
    ablations: StoredAblations | None = None,
) -> dict[str, Specification]:
    """Charts for papers by the name of their file: Figures 1b, 1c, 3, 4, 5, 6 and 9.

    Parameters
    ----------
    stored : Results
        What to show.
    reference : str
        The method that the others are compared with.
    profile : Profile, optional
        How coupling is distributed: for Figures 1b, 4 and 9.
    ablations : StoredAblations, optional
        For Figures 4 to 6; those among the results if not given.
    """
    reference = _resolve_reference(stored, reference)
    rows = make_chart_rows(stored, reference)
    looks = choose_looks(rows.labels)
    couplings = {} if profile is None else make_coupling_charts(profile)
    return {
        **make_cost_charts(rows, looks),
        **make_task_costs(stored, rows, looks),
        **make_radars(stored, rows, looks),
        **make_ablation_figures(ablations or find_ablations(stored), profile),
        **couplings,
    }


def _resolve_reference(stored: Results, reference: str) -> str:
    """The label of the reference: a bare name may stand for a method with settings."""
    combinations = [row.combination for row in stored.rows if row.combination.method is not None]
    named = [each.label for each in combinations if each.method and each.method.name == reference]
    exact = any(each.goes_by(reference) for each in combinations)
    return reference if exact or not named else named[0]


def _find_method(answers: dict[str, Any], reference: str) -> int:
    """The place of the reference at its smallest budget, to begin with."""
    own = [
        place
        for place, each in enumerate(answers["methods"])
        if each["budget"]
        and "run" not in each
        and each["method"].partition(":")[0] == reference.partition(":")[0]
    ]
    return own[-1] if own else len(answers["methods"]) - 1


def _explain_coupling(profile: Profile) -> str:
    note = (
        f"Hausdorff distance between prompt and picture of {profile.count} samples, measured in "
        f"{profile.model} after {profile.after} decoder blocks; small is strong coupling. "
    )
    if profile.separated:
        return f"{note}Two groups, divided at τ."
    return f"{note}Not two groups: {profile.objection}."


def _tabulate_paper(stored: Results) -> dict[str, Any] | None:
    found = compare_with_paper(stored)
    if not found:
        return None
    names = ["Avg. %", *found[0].scores]
    sections: dict[str, list[dict[str, Any]]] = {}
    for each in sorted(found, key=lambda each: each.paper.reduction):
        reduction = each.paper.reduction
        section = f"{reduction:g} % of the tokens dropped" if reduction else "all tokens"
        pairs = [(f"{each.paper.printed_average:g}", each.average), *each.scores.values()]
        sections.setdefault(section, []).append({"name": each.name, "pairs": pairs})
    return {
        "model": find_paper_model(stored.model),
        "notes": explain_paper(stored),
        "header": [f"{name} ({who})" for name in names for who in ("paper", "here")],
        "sections": sections,
    }
