"""Ablations: collected from results, and written as tables, charts and a page.

`tokencover ablate` evaluates such settings; any other results may contain them too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from tokencover.budget import Profile, Split
from tokencover.evaluation.ablation import (
    AblationSetting,
    MeasuredSetting,
    mean_relative_slope,
    measure,
    vary_folds,
    vary_layers,
    vary_prompt_budgets,
)
from tokencover.evaluation.columns import NOTHING, format_decimal, format_percent
from tokencover.evaluation.plan import Combination
from tokencover.evaluation.report.charts import (
    BOX_PARTS,
    Specification,
    draw_boxes,
    finish_chart,
    make_curves,
)
from tokencover.evaluation.report.page_templates import render_page
from tokencover.evaluation.results import Results
from tokencover.evaluation.scoring import ResultRow
from tokencover.methods import MoB
from tokencover.statistics import Interval, find_mean_score
from tokencover.tables import TextTable, escape_markdown

ALL: Final = "all tasks"
AblationName = Literal["k-prompt", "fold", "layer"]
ABLATION_TITLES: Final[dict[AblationName, tuple[str, str]]] = {
    "k-prompt": ("The prompt's fraction of the budget", "Kp"),
    "fold": ("The covering fold", "k / Kp"),
    "layer": ("The pruning layer", "decoder layers before pruning"),
}
"""Title and horizontal axis of each ablation."""
SLOPE_HEADER: Final = ("tasks", "curve", "best", "accuracy %", "slope %")
FEWEST_POINTS: Final = 2
"""Of a curve."""


@dataclass(frozen=True)
class Ablation:
    """Settings of an ablation, in the order of tables, with their results by combination.

    `title` names the varied setting, `axis` the meaning of `AblationSetting.x`; `groups` has the
    group of each task.
    """

    title: str
    axis: str
    model: str
    settings: tuple[AblationSetting, ...]
    rows: Mapping[Combination, ResultRow]
    groups: Mapping[str, str]

    @property
    def columns(self) -> list[str]:
        """Groups with a column in tables: none if there is only one."""
        groups = list(dict.fromkeys(self.groups.values()))
        return groups if len(groups) > 1 else []

    @property
    def task_sets(self) -> dict[str, list[str]]:
        """Tasks that are averaged: all, each group, each task; equal sets only once."""
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
        """Measured settings by set of tasks and curve; intervals are slow to compute."""
        return {
            name: measure(self.settings, self.rows, tasks) for name, tasks in self.task_sets.items()
        }

    @cached_property
    def unpruned(self) -> dict[str, Interval | None]:
        """Accuracy of the unpruned model, by set of tasks."""
        row = self.rows[Combination(None)]
        return {
            name: find_mean_score([row.records[task] for task in tasks]) if row.summary else None
            for name, tasks in self.task_sets.items()
        }


def make_ablation_markdown(ablation: Ablation) -> str:
    """Return both tables with their notes."""
    return "\n\n".join(map(str, tabulate_ablation(ablation))) + "\n"


def tabulate_ablation(ablation: Ablation) -> tuple[TextTable, TextTable]:
    """Return the table of settings, and that of slopes, for the terminal and Markdown."""
    heading = f"{ablation.title}, {ablation.model}"
    notes = [escape_markdown(note) for note in explain(ablation)]
    return (
        TextTable(_make_header(ablation), list_results(ablation), above=heading, markdown=True),
        TextTable(SLOPE_HEADER, list_slopes(ablation), words=3, notes=notes, markdown=True),
    )


def export_ablation(ablation: Ablation) -> dict[str, Any]:
    """Return plain values: accuracies and costs as fractions, None where a setting failed."""
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
                "accuracy": {name: each and each.accuracy.mean for name, each in found.items()},
                "flops": costs[0] if costs else None,
            }
        )
    unpruned = {name: found and found.mean for name, found in ablation.unpruned.items()}
    about = {"title": ablation.title, "axis": ablation.axis, "model": ablation.model}
    return {**about, "unpruned": unpruned, "settings": settings}


def make_ablation_page(ablation: Ablation) -> str:
    """Return a page with tables and charts."""
    return render_page(
        "ablation.html.j2",
        title=f"{ablation.title}, {ablation.model}",
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
    """Draw a chart for each set of tasks; if costs differ, also accuracy against cost.

    `boxes` are distributions of coupling by task, for `make_curves`.
    """
    found = {}
    for number, (name, curves) in enumerate(ablation.curves.items()):
        points = [point for curve, each in curves.items() for point in _make_points(curve, each)]
        if points:
            unpruned = _get_unpruned_percent(ablation, name)
            known = [boxes[task] for task in ablation.task_sets[name] if boxes and task in boxes]
            found[f"{number:02}-{name}"] = make_curves(
                points, name, ablation.axis, unpruned, boxes=known
            )
    if found and _costs_differ(ablation):
        found["cost"] = _make_cost_chart(ablation)
    return found


def list_results(ablation: Ablation) -> list[list[str]]:
    """List accuracies, tokens and FLOPs of each setting."""
    curves = ablation.curves[ALL].values()
    found = {each.setting: each.accuracy for curve in curves for each in curve}
    unpruned = ablation.rows[Combination(None)]
    rows = [_make_result_row("unpruned", unpruned, ablation.unpruned[ALL], ablation)]
    return rows + [
        _make_result_row(each.name, ablation.rows[each.combination], found.get(each), ablation)
        for each in ablation.settings
    ]


def list_slopes(ablation: Ablation) -> list[list[str]]:
    """List slope and best setting for each set of tasks and each curve."""
    rows = []
    for name, curves in ablation.curves.items():
        for curve, each in curves.items():
            slope = _compute_slope(each)
            # The first of equally good settings.
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
    """Say what the numbers mean, and what is missing."""
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


def _make_header(ablation: Ablation) -> list[str]:
    return ["setting", f"{ALL} [95 %]", *ablation.columns, "tokens left", "FLOPs %"]


def _make_result_row(
    name: str, row: ResultRow, accuracy: Interval | None, ablation: Ablation
) -> list[str]:
    summary = row.summary
    if summary is None:
        return [name, *[NOTHING] * (len(_make_header(ablation)) - 1)]
    shown = NOTHING
    if accuracy is not None:
        mean, low, high = map(format_percent, (accuracy.mean, accuracy.low, accuracy.high))
        shown = f"{mean} [{low}, {high}]"
    cells = [format_percent(summary.groups[group]) for group in ablation.columns]
    return [name, shown, *cells, format_decimal(summary.tokens), format_percent(summary.flops)]


def _compute_slope(curve: Sequence[MeasuredSetting]) -> float | None:
    return mean_relative_slope(
        [each.setting.x for each in curve], [each.accuracy.mean for each in curve]
    )


def _make_points(curve: str, found: Sequence[MeasuredSetting]) -> list[dict[str, Any]]:
    """The points of a curve, named with its highest point and its slope."""
    if not found[1:]:
        return [_make_point(curve, each) for each in found]
    slope = _compute_slope(found)
    best = max(found, key=lambda each: each.accuracy.mean)
    label = f"{curve}: best {best.setting.name.removeprefix(curve).strip(', ')}"
    if slope is not None:
        label += f", slope {round(slope, 3) + 0.0:+.3f} %"
    return [{**_make_point(label, each), "best": each is best} for each in found]


def _make_point(curve: str, measured: MeasuredSetting) -> dict[str, Any]:
    ends = {"y": "mean", "low": "low", "high": "high"}
    numbers = {key: round(100 * getattr(measured.accuracy, end), 2) for key, end in ends.items()}
    return {"curve": curve, "x": measured.setting.x, **numbers, "name": measured.setting.name}


def _get_unpruned_percent(ablation: Ablation, name: str) -> float | None:
    accuracy = ablation.unpruned[name]
    return None if accuracy is None else 100 * accuracy.mean


def _costs_differ(ablation: Ablation) -> bool:
    """Whether the settings of a curve differ in FLOPs, as pruning layers do."""
    curves = ablation.curves[ALL].values()
    return any(len({round(each.flops, 4) for each in curve}) > 1 for curve in curves)


def _make_cost_chart(ablation: Ablation) -> Specification:
    points = [
        {**_make_point(curve, each), "x": round(100 * each.flops, 2)}
        for curve, found in ablation.curves[ALL].items()
        for each in found
    ]
    unpruned = _get_unpruned_percent(ablation, ALL)
    return make_curves(points, "accuracy against FLOPs", "FLOPs %", unpruned, ordered=False)


# ---- ablations among stored results ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredAblations:
    """Ablations among stored results, None where there are none.

    `prompt_budgets` varies Kp for each K (Figure 4), `folds` k for each Kp (Figure 5, Table 6),
    `layers` the pruning layer (Figure 6).
    """

    prompt_budgets: Ablation | None = None
    folds: Ablation | None = None
    layers: Ablation | None = None


def collect_ablations(stored: Results) -> StoredAblations:
    """Collect settings of MoB that differ only in Kp, only in k or only in the layer."""
    rows = {row.combination: row for row in stored.rows if row.summary is not None}
    methods = [each.method for each in rows if isinstance(each.method, MoB)]
    counted = [each for each in methods if isinstance(each.budget, int)]
    splits = {(each.budget, each.split) for each in counted if isinstance(each.split, Split)}
    pairs = sorted({(int(budget), split.prompt_budget) for budget, split in splits})
    folds = sorted({split.fold / split.prompt_budget for _, split in splits if split.prompt_budget})
    settings: dict[AblationName, list[AblationSetting]] = {
        "k-prompt": [each for k, kp in pairs for each in vary_prompt_budgets([k], [kp / k])],
        "fold": [each for k, kp in pairs if kp for each in vary_folds([k], folds, kp / k)],
        "layer": vary_layers(
            sorted({each.budget for each in methods}), [each.after for each in methods]
        ),
    }
    return StoredAblations(*(_collect(name, each, stored, rows) for name, each in settings.items()))


def _collect(
    name: AblationName,
    settings: Sequence[AblationSetting],
    stored: Results,
    rows: dict[Combination, ResultRow],
) -> Ablation | None:
    """The settings that were evaluated, in curves of some points."""
    found = list(dict.fromkeys(each for each in settings if each.combination in rows))
    points = Counter(each.curve for each in found)
    found = [each for each in found if points[each.curve] >= FEWEST_POINTS]
    if not found:
        return None
    whole = Combination(None)
    known = {whole: ResultRow(whole, {}, None, None, None), **rows}
    title, axis = ABLATION_TITLES[name]
    return Ablation(title, axis, stored.title, tuple(found), known, dict(stored.groups))


def make_ablation_figures(
    ablations: StoredAblations, profile: Profile | None
) -> dict[str, Specification]:
    """Draw Figures 4 to 6, by the names of their files: ``fig4-TASK``, ``fig6-cost``.

    With a profile, Figure 4 has box plots of coupling; separately they are ``fig4-coupling``.
    """
    boxes = {} if profile is None else list_boxes(profile)
    charts = {
        **_number(4, ablations.prompt_budgets, boxes),
        **_number(5, ablations.folds, {}),
        **_number(6, ablations.layers, {}),
    }
    if boxes:
        charts["fig4-coupling"] = finish_chart(draw_boxes(list(boxes.values())), "coupling by task")
    return charts


def list_boxes(profile: Profile) -> dict[str, dict[str, Any]]:
    """Return the box plot of coupling of each task, if the profile has it."""
    return {
        task.name: {
            "task": task.name.rsplit("/", 1)[-1],
            **dict(zip(BOX_PARTS, (round(value, 4) for value in task.quartiles), strict=True)),
        }
        for task in profile.tasks
        if task.quartiles
    }


def _number(
    figure: int, ablation: Ablation | None, boxes: dict[str, dict[str, Any]]
) -> dict[str, Specification]:
    if ablation is None:
        return {}
    charts = make_ablation_charts(ablation, boxes)
    return {f"fig{figure}-{re.sub(r'^[0-9]+-', '', name)}": chart for name, chart in charts.items()}
