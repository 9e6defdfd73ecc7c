"""The paper's Figure 3 as it is there: accuracy against cost in every task by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tokencover.evaluation.report.chart_looks import UNPRUNED, Look
from tokencover.evaluation.report.chart_rows import ChartRows
from tokencover.evaluation.report.report_charts import shorten_names
from tokencover.evaluation.report.vega_charts import (
    COSTS,
    Specification,
    encode_methods,
    finish_chart,
    import_altair,
)
from tokencover.evaluation.results import Results

PANEL: Final = 190
"""Pixels of a panel."""
ACROSS: Final = 4
"""Panels in a row of a file."""


def make_task_costs(
    stored: Results, rows: ChartRows, looks: Mapping[str, Look]
) -> dict[str, Specification]:
    """A chart of panels, one a task, for every cost that was measured."""
    records = _list_records(stored, rows)
    names = shorten_names(list(stored.groups))
    return {
        f"fig3-tasks-{cost.replace('_', '-')}": _draw_panels(
            [each for each in records if each[cost] is not None], rows, looks, cost, names
        )
        for cost in COSTS
        if any(each[cost] is not None for each in records if each["method"] != "unpruned")
    }


def _draw_panels(
    records: list[dict[str, Any]],
    rows: ChartRows,
    looks: Mapping[str, Look],
    cost: str,
    tasks: list[str],
) -> Specification:
    alt = import_altair()
    color, dash = encode_methods(rows.labels, looks)
    x = alt.X(f"{cost}:Q", title=COSTS[cost], scale=alt.Scale(zero=False))
    y = alt.Y("accuracy:Q", title="accuracy %", scale=alt.Scale(zero=False))
    every = alt.Chart().encode(x=x, y=y)
    drawn = every.transform_filter("indexof(shown, datum.method) >= 0").transform_filter(
        "indexof(budgets, datum.budget) >= 0"
    )
    whole = every.transform_filter("datum.method == 'unpruned'")
    tips = ["method:N", "budget:N", "task:N", alt.Tooltip("accuracy:Q", format=".1f")]
    layers = alt.layer(
        drawn.mark_line(strokeWidth=1.5).encode(color=color, strokeDash=dash),
        drawn.mark_point(filled=True, size=30, opacity=1).encode(color=color, tooltip=tips),
        whole.mark_point(shape="diamond", filled=True, size=70, color=UNPRUNED, opacity=1),
        data=alt.Data(values=records),
    ).properties(width=PANEL, height=PANEL)
    chart = (
        layers.facet(alt.Facet("task:N", title=None, sort=tasks), columns=ACROSS)
        .resolve_scale(y="independent")
        .add_params(
            alt.param(name="shown", value=rows.shown), alt.param(name="budgets", value=rows.budgets)
        )
    )
    return finish_chart(chart, f"Accuracy against {COSTS[cost]}")


def _list_records(stored: Results, rows: ChartRows) -> list[dict[str, Any]]:
    """A plain record for each method, budget and task; costs are those of all tasks."""
    costs = {(each["method"], each["budget"]): each for each in rows.records}
    tasks = list(zip(stored.groups, shorten_names(list(stored.groups)), strict=True))
    found = []
    for row in stored.rows:
        known = costs.get((row.combination.label, row.combination.budget))
        if row.combination.method is None:
            known = {**rows.whole, "method": "unpruned", "budget": ""}
        if known is None or row.summary is None:
            continue
        for task, name in tasks:
            accuracy = row.summary.accuracy.get(task)
            if accuracy is not None:
                found.append(
                    {
                        "method": known["method"],
                        "budget": known["budget"],
                        "task": name,
                        "accuracy": round(100 * accuracy, 2),
                        **{cost: known[cost] for cost in COSTS},
                    }
                )
    order = {label: place for place, label in enumerate(reversed(rows.labels))}
    return sorted(found, key=lambda each: order.get(each["method"], -1))
