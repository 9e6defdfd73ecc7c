"""An ablation as tables, charts and a page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape

from tokencover.evaluation.ablation import (
    Measured,
    Setting,
    accuracy_of,
    mean_relative_slope,
    measure,
)
from tokencover.evaluation.plan import Combination
from tokencover.evaluation.report import NOTHING, Row, decimal, percent
from tokencover.evaluation.reporting.charts import Labels, Point, Series, line_chart, scatter
from tokencover.evaluation.reporting.markdown import plain, table
from tokencover.evaluation.reporting.page import document, html_table
from tokencover.evaluation.statistics import Interval

ALL = "all tasks"


@dataclass(frozen=True)
class Ablation:
    """What was tried, and what came of it.

    Attributes
    ----------
    title : str
        What the ablation is about.
    axis : str
        What `Setting.x` is.
    model : str
        Who was asked.
    settings : tuple of Setting
        In the order of tables.
    rows : mapping
        Results by combination, the unpruned model among them.
    groups : mapping
        The group of each task.
    """

    title: str
    axis: str
    model: str
    settings: tuple[Setting, ...]
    rows: Mapping[Combination, Row]
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
    def curves(self) -> dict[str, dict[str, list[Measured]]]:
        """What was measured, by set of tasks and curve; intervals take a while to compute."""
        return {
            name: measure(self.settings, self.rows, tasks) for name, tasks in self.task_sets.items()
        }

    @cached_property
    def unpruned(self) -> dict[str, Interval | None]:
        """Accuracy of the model as it is, by set of tasks."""
        row = self.rows[Combination(None)]
        return {
            name: accuracy_of([row.records[task] for task in tasks]) if row.summary else None
            for name, tasks in self.task_sets.items()
        }


def as_markdown(ablation: Ablation) -> str:
    """Both tables with what they mean."""
    results = table(_header(ablation), _plain(result_rows(ablation)))
    slopes = table(_slope_header(ablation), _plain(slope_rows(ablation)), words=3)
    notes = "\n\n".join(map(plain, notes_on(ablation)))
    return f"# {plain(_heading(ablation))}\n\n{results}\n\n{slopes}\n\n{notes}\n"


def as_page(ablation: Ablation) -> str:
    """One page with tables and charts."""
    drawn = "\n".join(charts(ablation).values())
    body = [
        f"<h1>{escape(_heading(ablation))}</h1>",
        html_table(_header(ablation), result_rows(ablation)),
        "<h2>Mean relative slope, and where a curve is highest</h2>",
        html_table(_slope_header(ablation), slope_rows(ablation), words=3),
        *[f'<p class="note">{escape(note)}</p>' for note in notes_on(ablation)],
        f'<h2>Curves</h2>\n<div class="charts">\n{drawn}\n</div>',
    ]
    return document(_heading(ablation), "\n".join(body))


def charts(ablation: Ablation) -> dict[str, str]:
    """SVG by file name: one for each set of tasks; if costs differ, accuracy against cost."""
    found = {}
    for number, (name, curves) in enumerate(ablation.curves.items()):
        if not curves:
            continue
        series = [Series(curve, tuple(map(_point, each))) for curve, each in curves.items()]
        labels = Labels(name, ablation.axis, "accuracy %", "unpruned")
        chart = line_chart(series, labels, _unpruned(ablation, name))
        found[f"{number:02}-{_file_name(name)}.svg"] = chart
    if found and _costs_differ(ablation):
        found["cost.svg"] = _against_cost(ablation)
    return found


def result_rows(ablation: Ablation) -> list[list[str]]:
    """A row for each setting: accuracies, tokens, operations."""
    curves = ablation.curves[ALL].values()
    found = {each.setting: each.accuracy for curve in curves for each in curve}
    unpruned = ablation.rows[Combination(None)]
    rows = [_result_row("unpruned", unpruned, ablation.unpruned[ALL], ablation)]
    return rows + [
        _result_row(each.name, ablation.rows[each.combination], found.get(each), ablation)
        for each in ablation.settings
    ]


def slope_rows(ablation: Ablation) -> list[list[str]]:
    """For each set of tasks and each curve: slope and best place."""
    rows = []
    for name, curves in ablation.curves.items():
        for curve, each in curves.items():
            slope = _slope(each)
            # Of equally good settings the first, so that a plateau has a name of its own too.
            best = max(each, key=lambda measured: measured.accuracy.mean)
            rows.append(
                [
                    name,
                    curve,
                    best.setting.name,
                    percent(best.accuracy.mean),
                    NOTHING if slope is None else f"{round(slope, 3) + 0.0:+.3f}",
                ]
            )
    return rows


def notes_on(ablation: Ablation) -> list[str]:
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


def _heading(ablation: Ablation) -> str:
    return f"{ablation.title}, {ablation.model}"


def _header(ablation: Ablation) -> list[str]:
    groups = list(dict.fromkeys(ablation.groups.values()))
    shown = groups if len(groups) > 1 else []
    return ["setting", f"{ALL} [95 %]", *shown, "tokens left", "FLOPs %"]


def _slope_header(ablation: Ablation) -> list[str]:
    return ["tasks", "curve", "best", "accuracy %", "slope %"]


def _result_row(name: str, row: Row, accuracy: Interval | None, ablation: Ablation) -> list[str]:
    summary = row.summary
    columns = len(_header(ablation))
    if summary is None:
        return [name, *[NOTHING] * (columns - 1)]
    shown = (
        NOTHING
        if accuracy is None
        else f"{percent(accuracy.mean)} [{percent(accuracy.low)}, {percent(accuracy.high)}]"
    )
    groups = list(dict.fromkeys(ablation.groups.values()))
    cells = [percent(summary.groups[group]) for group in groups] if len(groups) > 1 else []
    return [name, shown, *cells, decimal(summary.tokens), percent(summary.flops)]


def _slope(curve: Sequence[Measured]) -> float | None:
    return mean_relative_slope(
        [each.setting.x for each in curve], [each.accuracy.mean for each in curve]
    )


def _point(measured: Measured) -> Point:
    mean, low, high = (
        100 * value
        for value in (measured.accuracy.mean, measured.accuracy.low, measured.accuracy.high)
    )
    return Point(measured.setting.x, mean, low, high, measured.setting.name)


def _unpruned(ablation: Ablation, name: str) -> float | None:
    accuracy = ablation.unpruned[name]
    return None if accuracy is None else 100 * accuracy.mean


def _costs_differ(ablation: Ablation) -> bool:
    """Whether the settings of a curve cost different amounts: where pruning happens matters."""
    curves = ablation.curves[ALL].values()
    return any(len({round(each.flops, 4) for each in curve}) > 1 for curve in curves)


def _against_cost(ablation: Ablation) -> str:
    series = [
        Series(curve, tuple(map(_cost_point, found)))
        for curve, found in ablation.curves[ALL].items()
    ]
    labels = Labels("accuracy against operations", "FLOPs %", "accuracy %", "unpruned")
    return scatter(series, labels, _unpruned(ablation, ALL))


def _cost_point(measured: Measured) -> Point:
    return Point(100 * measured.flops, 100 * measured.accuracy.mean, name=measured.setting.name)


def _plain(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[plain(cell) for cell in row] for row in rows]


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.+]+", "-", name).strip("-") or "tasks"
