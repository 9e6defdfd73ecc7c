"""The charts of reports, one specification each for the page and for files.

`shown` and `budgets` are parameters of a chart: the page changes them, a file has them as they are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tokencover.errors import import_extra
from tokencover.evaluation.report.chart_looks import UNPRUNED, Look
from tokencover.evaluation.report.chart_rows import ChartRows

Specification = dict[str, Any]
"""A chart in the language of Vega-Lite."""

COSTS: Final = {
    "flops": "prefill FLOPs, % of unpruned",
    "time": "time to the first token, % of unpruned",
    "mean_tokens": "visual tokens, mean over decoder blocks",
}
RADAR_SIZE: Final = 250
"""Pixels of a radar chart from top to bottom, small enough for a phone."""
BUDGET_SHAPES: Final = (
    *("circle", "square", "triangle-up", "cross"),
    *("triangle-down", "triangle-right", "triangle-left", "stroke"),
)
"""Shapes of points by budget: numbers beside the points of many methods would overlap."""
UNPRUNED_SHAPE: Final = "diamond"
LEGEND_GAP: Final = 36
LETTER_WIDTH: Final = 6
"""Pixels of a legend's column besides its text, and of a letter."""


def import_altair() -> Any:
    """Altair, or a message that says how to get it."""
    return import_extra(
        "altair", "drawing charts", "tokencover[figures]", "read the tables: --markdown, --csv"
    )


def make_cost_chart(rows: ChartRows, looks: Mapping[str, Look], cost: str) -> Specification:
    """Accuracy lost against a cost: a line for each method, a point with its interval a budget.

    Parameters
    ----------
    rows : ChartRows
        What to draw.
    looks : mapping
        Colour and line of each method.
    cost : str
        One of `COSTS`.
    """
    alt = import_altair()
    title = COSTS[cost]
    records = [each for each in rows.records if None not in (each[cost], each["lost"])]
    records.sort(key=lambda each: -rows.labels.index(each["method"]))  # the reference on top
    shown = (
        alt.Chart(alt.Data(values=records))
        .transform_filter("indexof(shown, datum.method) >= 0")
        .transform_filter("indexof(budgets, datum.budget) >= 0")
    )
    x = alt.X(
        f"{cost}:Q",
        title=title,
        scale=alt.Scale(zero=False, nice=True),
        axis=alt.Axis(tickCount=alt.ExprRef("ceil(width / 80)")),
    )
    y = alt.Y("lost:Q", title="accuracy minus unpruned, points", scale=alt.Scale(zero=True))
    color, dash = encode_methods(rows.labels, looks)
    tips = [
        alt.Tooltip("method:N"),
        alt.Tooltip("budget:N", title="budget"),
        alt.Tooltip("average:Q", title="Avg. %", format=".1f"),
        alt.Tooltip("lost:Q", title="minus unpruned", format="+.1f"),
        alt.Tooltip("low:Q", title="interval from", format="+.1f"),
        alt.Tooltip("high:Q", title="to", format="+.1f"),
        alt.Tooltip("flops:Q", title="FLOPs %", format=".1f"),
        alt.Tooltip("time:Q", title="time %", format=".0f"),
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
        end = alt.Chart(alt.Data(values=whole)).mark_point(filled=True, size=110, color=UNPRUNED)
        layers.append(
            end.encode(x=f"{cost}:Q", y="lost:Q", shape=encode_budgets(rows.budgets, "name"))
        )
    chart = alt.layer(*layers).add_params(
        alt.param(name="shown", value=rows.shown), alt.param(name="budgets", value=rows.budgets)
    )
    return finish_chart(
        chart.properties(width="container", height=380), f"Accuracy against {title}"
    )


def encode_methods(labels: Sequence[str], looks: Mapping[str, Look]) -> tuple[Any, Any]:
    """Colour and dashes of methods, with one legend that names those which are shown."""
    alt = import_altair()
    longest = LEGEND_GAP + LETTER_WIDTH * max(map(len, labels), default=0)
    legend = alt.Legend(
        orient="bottom",
        columns=alt.ExprRef(f"max(1, floor((width + 60) / {longest}))"),
        labelLimit=alt.ExprRef("max(160, width - 20)"),
        title=None,
        symbolLimit=0,
        symbolType="stroke",
        symbolStrokeWidth=3,
        symbolOpacity=1,
        values=alt.ExprRef("shown"),
    )
    domain = list(labels)
    color = alt.Color(
        "method:N",
        scale=alt.Scale(domain=domain, range=[looks[label].color for label in domain]),
        legend=legend,
    )
    dash = alt.StrokeDash(
        "method:N",
        scale=alt.Scale(domain=domain, range=[looks[label].dash for label in domain]),
        legend=legend,
    )
    return color, dash


def encode_budgets(budgets: Sequence[str], field: str = "budget") -> Any:
    """Shapes of budgets and of the unpruned model, with their legend."""
    alt = import_altair()
    shapes = itertools.islice(itertools.cycle(BUDGET_SHAPES), len(budgets))
    return alt.Shape(
        f"{field}:N",
        scale=alt.Scale(domain=[*budgets, "unpruned"], range=[*shapes, UNPRUNED_SHAPE]),
        legend=alt.Legend(
            orient="top",
            columns=alt.ExprRef("width < 420 ? 4 : 9"),
            title="budget",
            titleOrient="left",
            symbolLimit=0,
            symbolSize=65,
            symbolFillColor="#808080",
            symbolStrokeColor="#808080",
        ),
    )


def make_radar(
    tasks: Sequence[str],
    polygons: Mapping[str, Sequence[float | None]],
    looks: Mapping[str, Look],
    scale: tuple[float, float, float],
    title: str,
    shown: Sequence[str],
) -> Specification:
    """Tasks as axes, a polygon for each method.

    Parameters
    ----------
    tasks : sequence of str
        Names of the axes.
    polygons : mapping
        For each method a value an axis, None where nothing was measured.
    looks : mapping
        Colour and line of each method.
    scale : tuple of float
        Values in the middle, at the rim, and from ring to ring: the same for charts that are
        compared.
    title : str
        Above it.
    shown : sequence of str
        The methods that are drawn at first.
    """
    alt = import_altair()
    values, rings, names, marks = _place_radar(tasks, polygons, scale)
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-1.62, 1.62]))
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[-1.25, 1.25]))
    color, dash = encode_methods(list(polygons), looks)
    tips = [alt.Tooltip("method:N"), "task:N", alt.Tooltip("value:Q", format=".1f", title="%")]

    def chart(data: Sequence[Mapping[str, Any]]) -> Any:
        return alt.Chart(alt.Data(values=list(data))).encode(x=x, y=y)

    drawn = chart(values).transform_filter("indexof(shown, datum.method) >= 0")
    chart_of_all = alt.layer(
        chart(rings)
        .mark_line(color="#8886", strokeWidth=1)
        .encode(detail="level:N", order="order:Q"),
        drawn.mark_line(strokeWidth=2).encode(color=color, strokeDash=dash, order="order:Q"),
        drawn.mark_point(filled=True, size=26, opacity=1).encode(color=color, tooltip=tips),
        *(
            chart([each for each in names if each["side"] == side])
            .mark_text(fontSize=10, align=side)
            .encode(text="task:N")
            for side in ("left", "center", "right")
            if any(each["side"] == side for each in names)
        ),
        chart(marks).mark_text(fontSize=9, opacity=0.65, dx=9).encode(text="text:N"),
    ).add_params(alt.param(name="shown", value=list(shown)))
    wide = round(RADAR_SIZE * 1.62 / 1.25)
    return finish_chart(chart_of_all.properties(width=wide, height=RADAR_SIZE), title)


def _place_radar(
    tasks: Sequence[str],
    polygons: Mapping[str, Sequence[float | None]],
    scale: tuple[float, float, float],
) -> tuple[list[dict[str, Any]], ...]:
    """Where corners, rings, names and numbers of a radar chart lie."""
    middle, rim, ring = scale
    levels = round((rim - middle) / ring)
    # The reference comes first, and is drawn last: on top.
    values = [
        {"method": label, "order": order, "task": tasks[order % len(tasks)], "value": value}
        | _place(order, len(tasks), (value - middle) / (rim - middle))
        for label, found in reversed(list(polygons.items()))
        for order, value in enumerate([*found, found[0]])
        if value is not None
    ]
    rings = [
        {"level": level, "order": order} | _place(order, len(tasks), level / levels)
        for level in range(1, levels + 1)
        for order in range(len(tasks) + 1)
    ]
    names = [
        {"task": task, "side": _choose_side(order, len(tasks))} | _place(order, len(tasks), 1.15)
        for order, task in enumerate(tasks)
    ]
    marks = [
        {"text": f"{middle + ring * level:.0f}"} | _place(0, len(tasks), level / levels)
        for level in range(levels + 1)
    ]
    return values, rings, names, marks


def _place(order: int, count: int, radius: float) -> dict[str, float]:
    """Where an axis is at a distance from the middle; the first points up."""
    angle = 2 * math.pi * order / count
    return {"x": round(radius * math.sin(angle), 4), "y": round(radius * math.cos(angle), 4)}


def _choose_side(order: int, count: int) -> str:
    """How the name of an axis is aligned, so that it points away from the chart."""
    across = math.sin(2 * math.pi * order / count)
    return "center" if abs(across) < 0.1 else "left" if across > 0 else "right"


def finish_chart(chart: Any, title: str) -> Specification:
    """A chart with its title and the looks that all have, as plain values."""
    specification: Specification = chart.properties(title=title).to_dict(validate=False)
    specification["config"] = {
        "view": {"stroke": None},
        "font": "system-ui, sans-serif",
        "background": "transparent",
    }
    return specification
