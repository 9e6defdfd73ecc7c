"""An ablation as tables, charts and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from tokencover.evaluation.ablation import (
    AblationSetting,
    MeasuredSetting,
    mean_relative_slope,
    measure,
)
from tokencover.evaluation.plan import Combination
from tokencover.evaluation.report.curve_charts import make_curves
from tokencover.evaluation.report.page_templates import render_page
from tokencover.evaluation.report.vega_charts import Specification
from tokencover.evaluation.result_rows import ResultRow
from tokencover.evaluation.results_table import NOTHING, format_decimal, format_percent
from tokencover.evaluation.table_formats import escape_markdown, write_markdown
from tokencover.statistics import Interval, find_mean_score

ALL: Final = "all tasks"
AblationName = Literal["k-prompt", "fold", "layer"]
ABLATION_TITLES: Final[dict[AblationName, tuple[str, str]]] = {
    "k-prompt": ("The prompt's share of the budget", "Kp"),
    "fold": ("The covering fold", "k / Kp"),
    "layer": ("The pruning layer", "decoder blocks before pruning"),
}
"""Title and horizontal axis of each ablation."""
SLOPE_HEADER: Final = ("tasks", "curve", "best", "accuracy %", "slope %")


@dataclass(frozen=True)
class Ablation:
    """What was tried, and what came of it.

    Attributes
    ----------
    title : str
        What the ablation is about.
    axis : str
        What `AblationSetting.x` is.
    model : str
        Who was asked.
    settings : tuple of AblationSetting
        In the order of tables.
    rows : mapping
        Results by combination, the unpruned model among them.
    groups : mapping
        The group of each task.
    """

    title: str
    axis: str
    model: str
    settings: tuple[AblationSetting, ...]
    rows: Mapping[Combination, ResultRow]
    groups: Mapping[str, str]

    @property
    def task_sets(self) -> dict[str, list[str]]:
        """What is averaged: all tasks, each group, each task; sets that are the same only once."""
        sets = {ALL: list(self.groups)}
        for group in dict.fromkeys(self.groups.values()):
            sets[group] = [task for task, its_group in self.groups.items() if its_group == group]
        sets.update((task, [task]) for task in self.groups)
        first: dict[tuple[str, ...], str] = {}
        for name, tasks in sets.items():
            first.setdefault(tuple(tasks), name)
        return {name: list(tasks) for tasks, name in first.items()}

    @cached_property
    def curves(self) -> dict[str, dict[str, list[MeasuredSetting]]]:
        """What was measured, by set of tasks and curve; intervals take a while to compute."""
        return {
            name: measure(self.settings, self.rows, tasks) for name, tasks in self.task_sets.items()
        }

    @cached_property
    def unpruned(self) -> dict[str, Interval | None]:
        """Accuracy of the model as it is, by set of tasks."""
        row = self.rows[Combination(None)]
        return {
            name: find_mean_score([row.records[task] for task in tasks]) if row.summary else None
            for name, tasks in self.task_sets.items()
        }


def make_ablation_markdown(ablation: Ablation) -> str:
    """Both tables with what they mean."""
    results = write_markdown(_make_header(ablation), _escape(list_results(ablation)))
    slopes = write_markdown(SLOPE_HEADER, _escape(list_slopes(ablation)), words=3)
    notes = "\n\n".join(map(escape_markdown, explain(ablation)))
    return f"# {escape_markdown(_make_heading(ablation))}\n\n{results}\n\n{slopes}\n\n{notes}\n"


def export_ablation(ablation: Ablation) -> dict[str, Any]:
    """The same as plain values: accuracies and costs as shares, None where a setting failed."""
    measured = {
        (name, each.setting): each
        for name, curves in ablation.curves.items()
        for curve in curves.values()
        for each in curve
    }
    settings = []
    for setting in ablation.settings:
        found = {name: measured.get((name, setting)) for name in ablation.curves}
        costs = [each.flops for each in found.values() if each is not None]
        settings.append(
            {
                "curve": setting.curve,
                "x": setting.x,
                "name": setting.name,
                "method": setting.combination.settings,
                "accuracy": {
                    name: None if each is None else each.accuracy.mean
                    for name, each in found.items()
                },
                "flops": costs[0] if costs else None,
            }
        )
    unpruned = {
        name: None if found is None else found.mean for name, found in ablation.unpruned.items()
    }
    about = {"title": ablation.title, "axis": ablation.axis, "model": ablation.model}
    return {**about, "unpruned": unpruned, "settings": settings}


def make_ablation_page(ablation: Ablation) -> str:
    """One page with tables and charts."""
    return render_page(
        "ablation.html.j2",
        title=_make_heading(ablation),
        header=_make_header(ablation),
        results=list_results(ablation),
        slope_header=SLOPE_HEADER,
        slopes=list_slopes(ablation),
        notes=explain(ablation),
        charts=make_ablation_charts(ablation),
    )


def make_ablation_charts(
    ablation: Ablation, boxes: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Specification]:
    """A chart by name for each set of tasks; if costs differ, accuracy against cost too.

    Parameters
    ----------
    ablation : Ablation
        What to draw: curves with their slopes, and where each is highest.
    boxes : mapping, optional
        How coupling is distributed in each task, for `make_curves`.
    """
    found = {}
    for number, (name, curves) in enumerate(ablation.curves.items()):
        points = [point for curve, each in curves.items() for point in _make_points(curve, each)]
        if points:
            unpruned = _find_unpruned(ablation, name)
            known = [boxes[task] for task in ablation.task_sets[name] if boxes and task in boxes]
            found[f"{number:02}-{name}"] = make_curves(
                points, name, ablation.axis, unpruned, boxes=known
            )
    if found and _costs_differ(ablation):
        found["cost"] = _make_cost_chart(ablation)
    return found


def list_results(ablation: Ablation) -> list[list[str]]:
    """A row for each setting: accuracies, tokens, operations."""
    curves = ablation.curves[ALL].values()
    found = {each.setting: each.accuracy for curve in curves for each in curve}
    unpruned = ablation.rows[Combination(None)]
    rows = [_make_result_row("unpruned", unpruned, ablation.unpruned[ALL], ablation)]
    return rows + [
        _make_result_row(each.name, ablation.rows[each.combination], found.get(each), ablation)
        for each in ablation.settings
    ]


def list_slopes(ablation: Ablation) -> list[list[str]]:
    """For each set of tasks and each curve: slope and best place."""
    rows = []
    for name, curves in ablation.curves.items():
        for curve, each in curves.items():
            slope = _find_slope(each)
            # Of equally good settings the first, so that a plateau has a name of its own too.
            best = max(each, key=lambda measured: measured.accuracy.mean)
            rows.append(
                [
                    name,
                    curve,
                    best.setting.name,
                    format_percent(best.accuracy.mean),
                    NOTHING if slope is None else f"{round(slope, 3) + 0.0:+.3f}",
                ]
            )
    return rows


def explain(ablation: Ablation) -> list[str]:
    """What the numbers mean, and what is missing."""
    notes = [
        "Accuracy in percent, tasks counting the same, with 95 % bootstrap intervals over clusters "
        "of examples. The mean relative slope is 100 / (x[n] - x[1]) times the sum of "
        "(y[i+1] - y[i]) / y[i] over a curve's points, the MoB paper's measure of how intense a "
        f"trade-off is; x is {ablation.axis}."
    ]
    for each in ablation.settings:
        row = ablation.rows[each.combination]
        if row.cannot is not None:
            notes.append(f"{each.name} cannot run: {' '.join(row.cannot.split())}")
        elif row.summary is not None and row.summary.failed:
            notes.append(f"{each.name}: {row.summary.failed} examples failed, not scored.")
    return notes


def _make_heading(ablation: Ablation) -> str:
    return f"{ablation.title}, {ablation.model}"


def _make_header(ablation: Ablation) -> list[str]:
    groups = list(dict.fromkeys(ablation.groups.values()))
    shown = groups if len(groups) > 1 else []
    return ["setting", f"{ALL} [95 %]", *shown, "tokens left", "FLOPs %"]


def _make_result_row(
    name: str, row: ResultRow, accuracy: Interval | None, ablation: Ablation
) -> list[str]:
    summary = row.summary
    columns = len(_make_header(ablation))
    if summary is None:
        return [name, *[NOTHING] * (columns - 1)]
    shown = NOTHING
    if accuracy is not None:
        mean, low, high = map(format_percent, (accuracy.mean, accuracy.low, accuracy.high))
        shown = f"{mean} [{low}, {high}]"
    groups = list(dict.fromkeys(ablation.groups.values()))
    cells = [format_percent(summary.groups[group]) for group in groups] if len(groups) > 1 else []
    return [name, shown, *cells, format_decimal(summary.tokens), format_percent(summary.flops)]


def _find_slope(curve: Sequence[MeasuredSetting]) -> float | None:
    return mean_relative_slope(
        [each.setting.x for each in curve], [each.accuracy.mean for each in curve]
    )


def _make_points(curve: str, found: Sequence[MeasuredSetting]) -> list[dict[str, Any]]:
    """A curve, in whose name its highest point and its slope are given."""
    if not found[1:]:
        return [_make_point(curve, each) for each in found]
    slope = _find_slope(found)
    best = max(found, key=lambda each: each.accuracy.mean)
    label = f"{curve}: best {best.setting.name.removeprefix(curve).strip(', ')}"
    if slope is not None:
        label += f", slope {round(slope, 3) + 0.0:+.3f} %"
    return [{**_make_point(label, each), "best": each is best} for each in found]


def _make_point(curve: str, measured: MeasuredSetting) -> dict[str, Any]:
    accuracy = measured.accuracy
    mean, low, high = (
        round(100 * each, 2) for each in (accuracy.mean, accuracy.low, accuracy.high)
    )
    name = measured.setting.name
    return {
        "curve": curve,
        "x": measured.setting.x,
        "y": mean,
        "low": low,
        "high": high,
        "name": name,
    }


def _find_unpruned(ablation: Ablation, name: str) -> float | None:
    accuracy = ablation.unpruned[name]
    return None if accuracy is None else 100 * accuracy.mean


def _costs_differ(ablation: Ablation) -> bool:
    """Whether the settings of a curve cost different amounts: where pruning happens matters."""
    curves = ablation.curves[ALL].values()
    return any(len({round(each.flops, 4) for each in curve}) > 1 for curve in curves)


def _make_cost_chart(ablation: Ablation) -> Specification:
    points = [
        {**_make_point(curve, each), "x": round(100 * each.flops, 2)}
        for curve, found in ablation.curves[ALL].items()
        for each in found
    ]
    title = "accuracy against operations"
    return make_curves(points, title, "FLOPs %", _find_unpruned(ablation, ALL), ordered=False)


def _escape(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[escape_markdown(cell) for cell in row] for row in rows]
