"""The report as one self-contained HTML page, and its charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from tokencover.budget import Profile
from tokencover.evaluation.report.ablations import (
    StoredAblations,
    collect_ablations,
    make_ablation_figures,
)
from tokencover.evaluation.report.changes import collect_answers, compare_runs
from tokencover.evaluation.report.charts import Specification
from tokencover.evaluation.report.kept_images import KeptExample
from tokencover.evaluation.report.page_templates import render_page
from tokencover.evaluation.report.paper_comparison import (
    compare_with_paper,
    get_paper_model,
    list_headings,
)
from tokencover.evaluation.report.report_charts import (
    RIVALS,
    ChartRows,
    make_chart_rows,
    make_cost_charts,
    make_coupling_charts,
    make_radars,
    make_task_costs,
)
from tokencover.evaluation.report.text import (
    RANKS_NOTE,
    SIGNIFICANCE_NOTE,
    explain_paper,
    list_facts,
    summarize_budgets,
    write_verdict,
)
from tokencover.evaluation.results import Results
from tokencover.evaluation.scoring import list_missing, list_warnings

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
"""Titles of the page's parts after the first, by their anchor."""

KEPT_NOTE: Final = (
    "Point at a token, or tap it: its text says where it lies, when it was chosen, and the word "
    "that chose it."
)


def make_page(
    stored: Results,
    *,
    reference: str = "mob",
    profile: Profile | None = None,
    kept: Sequence[KeptExample] = (),
    other: Results | None = None,
    ablations: StoredAblations | None = None,
    command: str = "",
    evaluated_by: Sequence[str] = (),
    date: str = "",
) -> str:
    """Build the whole page.

    `profile` adds the distribution of coupling, `kept` kept tokens of some examples, `other` a
    comparison with another run. `ablations` are by default those among the results. `command` wrote
    the page, `evaluated_by` the results.
    """
    reference = _resolve_reference(stored, reference)
    table = stored.compare(reference)
    rows = make_chart_rows(stored, reference)
    charts = _collect_charts(stored, rows, profile, ablations)
    one = list(charts["cost_by_task"].items())[:1] if charts["cost"] else []
    charts["cost_by_task"] = dict(one)  # the page shows one cost task by task
    answers, paper = collect_answers(stored, other), _tabulate_paper(stored)
    several = bool(answers["methods"][1:])
    shown = {**charts, "changed": several, "kept": kept, "other-run": other, "paper": paper}
    return render_page(
        "report.html.j2",
        title=f"Pruning visual tokens of {stored.title}",
        warnings=list_warnings(stored.rows),
        verdict=write_verdict(stored),
        summary=summarize_budgets(stored, reference),
        facts=list_facts(stored),
        rivals=RIVALS,
        ranks_note=RANKS_NOTE,
        significance_note=SIGNIFICANCE_NOTE,
        kept_note=KEPT_NOTE,
        parts=[("comparison", "Comparison"), *((key, PARTS[key]) for key in PARTS if shown[key])],
        command=command,
        evaluated_by=evaluated_by,
        date=date,
        reference=reference,
        rows=rows,
        table=table,
        task_table=stored.compare_tasks(),
        notes=[*table.notes.values(), *list_missing(stored.rows)],
        charts=_join(charts),
        drawn=charts,
        coupling_note="" if profile is None else _explain_coupling(profile),
        answers=answers if several else None,
        mine=_get_initial_method(answers, reference),
        kept=list(kept),
        other_run=None if other is None else compare_runs(stored, other),
        paper=paper,
    )


def _collect_charts(
    stored: Results, rows: ChartRows, profile: Profile | None, ablations: StoredAblations | None
) -> dict[str, dict[str, Specification]]:
    """Charts by part of the page."""
    return {
        "cost": make_cost_charts(rows),
        "cost_by_task": make_task_costs(stored, rows),
        "tasks": make_radars(stored, rows),
        "coupling": {} if profile is None else make_coupling_charts(profile),
        "ablations": make_ablation_figures(ablations or collect_ablations(stored), profile),
    }


def _join(parts: Mapping[str, dict[str, Specification]]) -> dict[str, Specification]:
    """All charts by name."""
    return {name: chart for charts in parts.values() for name, chart in charts.items()}


def make_figures(
    stored: Results,
    *,
    reference: str = "mob",
    profile: Profile | None = None,
    ablations: StoredAblations | None = None,
) -> dict[str, Specification]:
    """Draw charts for papers by the name of their file: Figures 1b, 1c, 3, 4, 5, 6 and 9.

    A profile adds the distribution of coupling (Figures 1b, 4 and 9). Ablations (Figures 4 to 6)
    are by default those among the results.
    """
    reference = _resolve_reference(stored, reference)
    charts = _collect_charts(stored, make_chart_rows(stored, reference), profile, ablations)
    order = ("cost", "cost_by_task", "tasks", "ablations", "coupling")
    return _join({part: charts[part] for part in order})


def _resolve_reference(stored: Results, reference: str) -> str:
    """The label of the reference; a bare name may mean a method with settings."""
    combinations = [row.combination for row in stored.rows if row.combination.method is not None]
    named = [each.label for each in combinations if each.method and each.method.name == reference]
    exact = any(each.goes_by(reference) for each in combinations)
    return reference if exact or not named else named[0]


def _get_initial_method(answers: dict[str, Any], reference: str) -> int:
    """Index of the reference at its smallest budget, the initial choice."""
    own = [
        index
        for index, each in enumerate(answers["methods"])
        if each["budget"]
        and "run" not in each
        and each["method"].partition(":")[0] == reference.partition(":")[0]
    ]
    return own[-1] if own else len(answers["methods"]) - 1


def _explain_coupling(profile: Profile) -> str:
    note = (
        f"Hausdorff distance between prompt and image of {profile.count} samples, measured in "
        f"{profile.model} after {profile.after} decoder layers; small is strong coupling. "
    )
    if profile.separated:
        return f"{note}Two groups, divided at τ."
    return f"{note}Not two groups: {profile.objection}."


def _tabulate_paper(stored: Results) -> dict[str, Any] | None:
    comparisons = compare_with_paper(stored)
    if not comparisons:
        return None
    sections = {
        f"{reduction:g} % of the tokens dropped" if reduction else "all tokens": list(lines)
        for reduction, lines in groupby(comparisons, key=lambda each: each.paper.reduction)
    }
    return {
        "model": get_paper_model(stored.model),
        "notes": explain_paper(stored),
        "header": list_headings(comparisons),
        "sections": sections,
    }
