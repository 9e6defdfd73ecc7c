"""The charts of a report, from its results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tokencover.budget import Profile
from tokencover.evaluation.report.charts import (
    UNPRUNED_COLOR,
    Look,
    Specification,
    choose_looks,
    encode_budgets,
    encode_methods,
    filter_shown,
    finish_chart,
    import_altair,
    make_histogram,
    make_radar,
)
from tokencover.evaluation.results import Results
from tokencover.evaluation.scoring import ResultRow, compute_difference, compute_relative_average

RIVALS: Final = 5
"""Methods that are shown at first, besides the reference."""
FEWEST_AXES: Final = 3
RINGS: Final = (10, 25, 50, 100)
"""Percentages between the rings of radar charts, which begin and end at a ring."""
MOST_RINGS: Final = 6
TIPS: Final = (
    ("average:Q", "Avg. %", ".1f"),
    ("lost:Q", "minus unpruned", "+.1f"),
    ("low:Q", "interval from", "+.1f"),
    ("high:Q", "to", "+.1f"),
    ("flops:Q", "FLOPs %", ".1f"),
    ("time:Q", "time %", ".0f"),
)
"""Numbers that a point shows: field, title and format."""
PANEL: Final = 190
"""Pixels of a panel."""
ACROSS: Final = 4
"""Panels per row."""


AXES: Final = {
    "flops": "prefill FLOPs, % of unpruned",
    "time": "time to the first token, % of unpruned",
    "mean_tokens": "visual tokens, mean over decoder layers",
}
"""Titles of horizontal axes, by the name of the cost in records."""


@dataclass(frozen=True)
class ChartRows:
    """Records for charts, one per method and budget.

    `looks` has all methods, the reference first, `shown` those that are shown at first, `whole`
    the costs of the unpruned model.
    """

    records: list[dict[str, Any]]
    looks: dict[str, Look]
    shown: list[str]
    budgets: list[str]
    whole: dict[str, float | None]

    @property
    def labels(self) -> list[str]:
        """All methods, the reference first."""
        return list(self.looks)


def make_chart_rows(stored: Results, reference: str) -> ChartRows:
    """Collect the records of charts.

    "lost" is the accuracy minus that of the unpruned model in points, "low" and "high" the ends of
    its paired interval.
    """
    finished = [row for row in stored.rows if row.combination.method is not None and row.summary]
    records = [_make_record(row, stored.unpruned, reference) for row in finished]
    own = {row.combination.label for row in finished if row.combination.goes_by(reference)}
    labels = _order_labels(finished, stored, own)
    looks = choose_looks(labels)
    budgets = list(dict.fromkeys(each["budget"] for each in records))
    unpruned = None if stored.unpruned is None else stored.unpruned.summary
    tokens = None if unpruned is None else unpruned.mean_tokens
    whole = {"flops": 100.0, "time": 100.0, "mean_tokens": tokens}
    looks = {label: looks[label] for label in labels}
    return ChartRows(records, looks, labels[: len(own) + RIVALS], budgets, whole)


def _make_record(row: ResultRow, unpruned: ResultRow | None, reference: str) -> dict[str, Any]:
    difference = compute_difference(row, unpruned)
    flops, tokens, mean_tokens = (
        getattr(row.summary, name) for name in ("flops", "tokens", "mean_tokens")
    )
    ends = {"lost": "mean", "low": "low", "high": "high"}
    return {
        "method": row.combination.label,
        "budget": row.combination.budget,
        "average": _round(compute_relative_average(row, unpruned), 2),
        **{
            name: _round(getattr(difference, end, None), 2, scale=100) for name, end in ends.items()
        },
        "flops": _round(flops, 2, scale=100),
        "time": _round(row.first_token, 2, scale=100),
        "tokens": _round(tokens),
        "mean_tokens": _round(mean_tokens),
        "own": row.combination.goes_by(reference),
    }


def _round(value: float | None, digits: int = 1, scale: float = 1) -> float | None:
    return None if value is None else round(scale * value, digits)


def _order_labels(rows: Sequence[ResultRow], stored: Results, own: set[str]) -> list[str]:
    """The labels of the reference, then the other methods by their mean Avg. over budgets."""
    averages: dict[str, list[float]] = {}
    for row in rows:
        averages.setdefault(row.combination.label, []).append(
            compute_relative_average(row, stored.unpruned) or 0.0
        )

    def rank(label: str) -> tuple[bool, float, str]:
        return label not in own, -sum(averages[label]) / len(averages[label]), label

    return sorted(averages, key=rank)


def make_cost_chart(rows: ChartRows, cost: str) -> Specification:
    """Draw accuracy lost against a cost: a line per method, a point per budget."""
    alt = import_altair()
    records = [each for each in rows.records if None not in (each[cost], each["lost"])]
    records.sort(key=lambda each: -rows.labels.index(each["method"]))  # the reference on top
    shown = filter_shown(alt.Chart(alt.Data(values=records)))
    x = alt.X(
        f"{cost}:Q",
        title=AXES[cost],
        scale=alt.Scale(zero=False, nice=True),
        axis=alt.Axis(tickCount=alt.ExprRef("ceil(width / 80)")),
    )
    y = alt.Y("lost:Q", title="accuracy minus unpruned, points", scale=alt.Scale(zero=True))
    color, dash = encode_methods(rows.looks)
    tips = [
        alt.Tooltip("method:N"),
        alt.Tooltip("budget:N", title="budget"),
        *(alt.Tooltip(name, title=title, format=form) for name, title, form in TIPS),
    ]
    layers = [
        shown.mark_rule(opacity=0.45).encode(x=x, y="low:Q", y2="high:Q", color=color),
        shown.mark_line(strokeWidth=2).encode(x=x, y=y, color=color, strokeDash=dash),
        shown.mark_point(filled=True, size=65, opacity=1).encode(
            x=x, y=y, color=color, shape=encode_budgets(rows.budgets), tooltip=tips
        ),
    ]
    if rows.whole[cost] is not None:
        whole = [{cost: rows.whole[cost], "lost": 0, "name": "unpruned"}]
        end = alt.Chart(alt.Data(values=whole)).mark_point(
            filled=True, size=110, color=UNPRUNED_COLOR
        )
        layers.append(
            end.encode(x=f"{cost}:Q", y="lost:Q", shape=encode_budgets(rows.budgets, "name"))
        )
    chart = alt.layer(*layers).add_params(*_make_parameters(rows))
    return finish_chart(
        chart.properties(width="container", height=380), f"Accuracy against {AXES[cost]}"
    )


def _make_parameters(rows: ChartRows) -> list[Any]:
    alt = import_altair()
    values = {"shown": rows.shown, "budgets": rows.budgets}
    return [alt.param(name=name, value=value) for name, value in values.items()]


def make_cost_charts(rows: ChartRows) -> dict[str, Specification]:
    """Draw accuracy against every cost that was measured (the paper's Figure 3)."""
    measured = [cost for cost in AXES if any(each[cost] is not None for each in rows.records)]
    known = any(each["lost"] is not None for each in rows.records)
    return {
        f"fig3-{cost.replace('_', '-')}": make_cost_chart(rows, cost) for cost in measured if known
    }


def make_radars(stored: Results, rows: ChartRows) -> dict[str, Specification]:
    """Draw tasks as axes for each budget, relative to the unpruned model (Figure 1c).

    All have one scale, to compare budgets.
    """
    unpruned = None if stored.unpruned is None else stored.unpruned.summary
    scores = {} if unpruned is None else unpruned.accuracy
    whole = {task: score for task, score in scores.items() if score}
    if len(whole) < FEWEST_AXES:
        return {}
    polygons = {
        budget: {
            row.combination.label: _make_relative(row, whole)
            for label in rows.labels
            for row in stored.rows
            if (row.combination.label, row.combination.budget) == (label, budget) and row.summary
        }
        for budget in rows.budgets
    }
    values = [
        value
        for found in polygons.values()
        for each in found.values()
        for value in each
        if value is not None
    ]
    if not values:
        return {}
    scale = _choose_scale(min(values), max(values))
    names = shorten_names(list(whole))
    return {
        f"fig1c-{budget}": make_radar(
            names, found, rows.looks, scale, f"budget {budget}", rows.shown
        )
        for budget, found in polygons.items()
        if found
    }


def make_coupling_charts(profile: Profile) -> dict[str, Specification]:
    """Draw the distribution of coupling: all samples (Figure 1b), then each task (Figure 9)."""
    charts = {"fig1b": make_histogram(profile.edges, profile.histogram, "all tasks", profile.tau)}
    for task in sorted(profile.tasks, key=lambda task: task.name):
        title = f"{task.name}: {task.mean:.3f} ± {task.deviation:.3f}"
        charts[f"fig9-{task.name}"] = make_histogram(
            profile.edges, task.histogram, title, profile.tau
        )
    return charts


def _choose_scale(least: float, most: float) -> tuple[float, float, float]:
    """Percentages in the middle, at the rim, and from ring to ring; the rim is 100 or more."""
    for ring in RINGS:
        rim = max(100, ring * math.ceil(most / ring))
        middle = min(ring * math.floor(least / ring), rim - ring)
        if rim - middle <= MOST_RINGS * ring:
            break
    return float(middle), float(rim), float(ring)


def _make_relative(row: ResultRow, whole: dict[str, float]) -> list[float | None]:
    accuracy = {} if row.summary is None else row.summary.accuracy
    found = [(accuracy.get(task), score) for task, score in whole.items()]
    return [None if mine is None else round(100 * mine / score, 2) for mine, score in found]


def make_task_costs(stored: Results, rows: ChartRows) -> dict[str, Specification]:
    """Draw a chart with one panel per task for every cost that was measured (Figure 3)."""
    records = _list_records(stored, rows)
    names = shorten_names(list(stored.groups))
    return {
        f"fig3-tasks-{cost.replace('_', '-')}": _draw_panels(
            [each for each in records if each[cost] is not None], rows, cost, names
        )
        for cost in AXES
        if any(each[cost] is not None for each in records if each["method"] != "unpruned")
    }


def _draw_panels(
    records: list[dict[str, Any]], rows: ChartRows, cost: str, tasks: list[str]
) -> Specification:
    alt = import_altair()
    color, dash = encode_methods(rows.looks)
    x = alt.X(f"{cost}:Q", title=AXES[cost], scale=alt.Scale(zero=False))
    y = alt.Y("accuracy:Q", title="accuracy %", scale=alt.Scale(zero=False))
    every = alt.Chart().encode(x=x, y=y)
    drawn = filter_shown(every)
    whole = every.transform_filter("datum.method == 'unpruned'")
    tips = ["method:N", "budget:N", "task:N", alt.Tooltip("accuracy:Q", format=".1f")]
    layers = alt.layer(
        drawn.mark_line(strokeWidth=1.5).encode(color=color, strokeDash=dash),
        drawn.mark_point(filled=True, size=30, opacity=1).encode(color=color, tooltip=tips),
        whole.mark_point(shape="diamond", filled=True, size=70, color=UNPRUNED_COLOR, opacity=1),
        data=alt.Data(values=records),
    ).properties(width=PANEL, height=PANEL)
    chart = (
        layers.facet(alt.Facet("task:N", title=None, sort=tasks), columns=ACROSS)
        .resolve_scale(y="independent")
        .add_params(*_make_parameters(rows))
    )
    return finish_chart(chart, f"Accuracy against {AXES[cost]}")


def _list_records(stored: Results, rows: ChartRows) -> list[dict[str, Any]]:
    """A record for each method, budget and task; costs are means over all tasks."""
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
                        **{cost: known[cost] for cost in AXES},
                    }
                )
    order = {label: index for index, label in enumerate(reversed(rows.labels))}
    return sorted(found, key=lambda each: order.get(each["method"], -1))


def shorten_names(tasks: list[str]) -> list[str]:
    """Drop the part before the last slash, if the names stay different."""
    last = [task.rsplit("/", 1)[-1] for task in tasks]
    return last if len(set(last)) == len(tasks) else tasks
