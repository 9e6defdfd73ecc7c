"""The figures of a report: accuracy against cost, radar charts, coupling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tokencover.budget import Profile
from tokencover.evaluation.report.charts import (
    WIDE,
    Labels,
    Point,
    Series,
    draw_histogram,
    draw_scatter,
)
from tokencover.evaluation.report.radar import Polygon, draw_radar
from tokencover.evaluation.result_rows import ResultRow, find_average
from tokencover.evaluation.results import Results

RIVALS: Final = 5
"""Methods in a radar chart besides the reference; with more it cannot be read."""
LONGEST_LABEL: Final = 28


def draw_trade_offs(stored: Results, reference: str) -> list[str]:
    """Avg. against the time to the first token, if it was measured, and against operations."""
    costs: list[tuple[str, Callable[[ResultRow], float | None]]] = [
        ("TTFT ratio", lambda row: row.first_token),
        ("FLOPs %", _find_flops),
    ]
    charts = []
    for name, cost in costs:
        series = _make_series(stored, reference, cost)
        if series:
            labels = Labels(f"Avg. against {name}", name, "Avg. %", "unpruned")
            charts.append(draw_scatter(series, labels, line=100.0, size=WIDE))
    return charts


def draw_radars(stored: Results, reference: str) -> list[str]:
    """For each budget: tasks as axes, scores relative to the unpruned model."""
    unpruned = stored.unpruned
    if unpruned is None or unpruned.summary is None:
        return []
    whole = {task: score for task, score in unpruned.summary.accuracy.items() if score}
    if len(whole) < 3:
        return []
    looks = _choose_looks(stored, reference)
    charts = []
    for budget in dict.fromkeys(row.combination.budget for row in stored.rows):
        rows = _choose_rows(stored, budget, list(whole), reference)
        polygons = [
            Polygon(
                _shorten_label(row.combination.label),
                _make_relative(row, whole),
                looks[row.combination.label],
            )
            for row in rows
        ]
        if polygons:
            unit = "percent of the unpruned model"
            charts.append(
                draw_radar(_shorten_names(list(whole)), polygons, f"budget {budget}", unit)
            )
    return charts


def draw_couplings(profile: Profile) -> list[str]:
    """How coupling is distributed: over all samples, then task by task."""
    all_labels = Labels("all tasks", "coupling η", "samples", _name_threshold(profile))
    charts = [draw_histogram(profile.edges, profile.histogram, all_labels, profile.tau)]
    for task in sorted(profile.tasks, key=lambda task: task.name):
        labels = Labels(
            f"{task.name}: {task.mean:.3f} ± {task.deviation:.3f}",
            "coupling η",
            "samples",
            _name_threshold(profile),
        )
        charts.append(draw_histogram(profile.edges, task.histogram, labels, profile.tau))
    return charts


def _name_threshold(profile: Profile) -> str:
    return "" if profile.tau is None else f"τ = {profile.tau:.3f}"


def _find_flops(row: ResultRow) -> float | None:
    return None if row.summary is None or row.summary.flops is None else 100 * row.summary.flops


def _make_series(
    stored: Results, reference: str, cost: Callable[[ResultRow], float | None]
) -> list[Series]:
    """A series for each method, a point for each budget."""
    looks = _choose_looks(stored, reference)
    points: dict[str, list[Point]] = {label: [] for label in looks}
    for row in stored.rows:
        x, y = cost(row), find_average(row, stored.unpruned)
        if row.combination.method is not None and x is not None and y is not None:
            points[row.combination.label].append(
                Point(x, y, name=f"budget {row.combination.budget}")
            )
    return [
        Series(_shorten_label(label), tuple(found), looks[label])
        for label, found in points.items()
        if found
    ]


def _choose_looks(stored: Results, reference: str) -> dict[str, int]:
    """A color for each method, the same in all figures; the reference has the first."""
    labels = {row.combination.label for row in stored.rows if row.combination.method is not None}
    own = {row.combination.label for row in stored.rows if row.combination.goes_by(reference)}
    ordered = sorted(labels, key=lambda label: (label not in own, label))
    first = 0 if own & labels else 1
    return {label: place + first for place, label in enumerate(ordered)}


def _choose_rows(stored: Results, budget: str, tasks: list[str], reference: str) -> list[ResultRow]:
    """The reference, then the best others, of one budget."""
    rows = [
        row
        for row in stored.rows
        if row.combination.method is not None
        and row.combination.budget == budget
        and row.summary is not None
        and all(row.summary.accuracy[task] is not None for task in tasks)
    ]

    def rank_row(row: ResultRow) -> tuple[bool, float, str]:
        return (
            not row.combination.goes_by(reference),
            -(find_average(row, stored.unpruned) or 0.0),
            str(row.combination),
        )

    ordered = sorted(rows, key=rank_row)
    leading = sum(row.combination.goes_by(reference) for row in rows)
    return ordered[: RIVALS + leading]


def _make_relative(row: ResultRow, whole: dict[str, float]) -> tuple[float, ...]:
    accuracy = {} if row.summary is None else row.summary.accuracy
    return tuple(100 * (accuracy[task] or 0.0) / score for task, score in whole.items())


def _shorten_names(tasks: list[str]) -> list[str]:
    """Without what all have in common before a slash, where that leaves different names."""
    last = [task.rsplit("/", 1)[-1] for task in tasks]
    return last if len(set(last)) == len(tasks) else tasks


def _shorten_label(label: str) -> str:
    return label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1]}…"
