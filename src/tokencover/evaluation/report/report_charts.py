"""Which charts a report has, from its results."""

from __future__ import annotations

import math
from typing import Final

from tokencover.budget import Profile
from tokencover.evaluation.report.chart_looks import Look
from tokencover.evaluation.report.chart_rows import ChartRows
from tokencover.evaluation.report.curve_charts import make_histogram
from tokencover.evaluation.report.vega_charts import (
    COSTS,
    Specification,
    make_cost_chart,
    make_radar,
)
from tokencover.evaluation.result_rows import ResultRow
from tokencover.evaluation.results import Results

FEWEST_AXES: Final = 3
RINGS: Final = (10, 25, 50, 100)
"""Percent between the rings of radar charts, which begin and end at a ring."""
MOST_RINGS: Final = 6


def make_cost_charts(rows: ChartRows, looks: dict[str, Look]) -> dict[str, Specification]:
    """Accuracy against every cost that was measured (the paper's Figure 3)."""
    measured = [cost for cost in COSTS if any(each[cost] is not None for each in rows.records)]
    known = any(each["lost"] is not None for each in rows.records)
    return {
        f"fig3-{cost.replace('_', '-')}": make_cost_chart(rows, looks, cost)
        for cost in measured
        if known
    }


def make_radars(
    stored: Results, rows: ChartRows, looks: dict[str, Look]
) -> dict[str, Specification]:
    """For each budget: tasks as axes, scores relative to the unpruned model (Figure 1c).

    All have one scale, so that budgets can be compared.
    """
    whole = _find_whole(stored)
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
        f"fig1c-{budget}": make_radar(names, found, looks, scale, f"budget {budget}", rows.shown)
        for budget, found in polygons.items()
        if found
    }


def make_coupling_charts(profile: Profile) -> dict[str, Specification]:
    """How coupling is distributed: over all samples (Figure 1b), then task by task (Figure 9)."""
    charts = {"fig1b": make_histogram(profile.edges, profile.histogram, "all tasks", profile.tau)}
    for task in sorted(profile.tasks, key=lambda task: task.name):
        title = f"{task.name}: {task.mean:.3f} ± {task.deviation:.3f}"
        charts[f"fig9-{task.name}"] = make_histogram(
            profile.edges, task.histogram, title, profile.tau
        )
    return charts


def shorten_names(tasks: list[str]) -> list[str]:
    """Without what all have in common before a slash, where that leaves different names."""
    last = [task.rsplit("/", 1)[-1] for task in tasks]
    return last if len(set(last)) == len(tasks) else tasks


def _choose_scale(least: float, most: float) -> tuple[float, float, float]:
    """Percent in the middle, at the rim, and from ring to ring; the rim is 100 or more."""
    for ring in RINGS:
        rim = max(100, ring * math.ceil(most / ring))
        middle = min(ring * math.floor(least / ring), rim - ring)
        if rim - middle <= MOST_RINGS * ring:
            break
    return float(middle), float(rim), float(ring)


def _find_whole(stored: Results) -> dict[str, float]:
    unpruned = stored.unpruned
    if unpruned is None or unpruned.summary is None:
        return {}
    return {task: score for task, score in unpruned.summary.accuracy.items() if score}


def _make_relative(row: ResultRow, whole: dict[str, float]) -> list[float | None]:
    accuracy = {} if row.summary is None else row.summary.accuracy
    found = [(accuracy.get(task), score) for task, score in whole.items()]
    return [None if mine is None else round(100 * mine / score, 2) for mine, score in found]
