"""The charts of reports, one specification each for the page and for files.

`shown` and `budgets` are parameters of a chart: the page changes them, a file has them as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tokencover.evaluation.report.chart_looks import UNPRUNED, Look
from tokencover.evaluation.report.chart_rows import ChartRows
from tokencover.extras import import_extra

Specification = dict[str, Any]
"""A chart in the language of Vega-Lite."""

COSTS: Final = {
    "flops": "prefill FLOPs, % of unpruned",
    "time": "time to the first token, % of unpruned",
    "mean_tokens": "visual tokens, mean over decoder blocks",
}
RADAR_SIZE: Final = 300
"""Pixels of a radar chart, small enough for a phone."""
LEVELS: Final = 4
"""Rings of a radar chart."""


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
    shown = (
        alt.Chart(alt.Data(values=records))
        .transform_filter("indexof(shown, datum.method) >= 0")
        .transform_filter("indexof(budgets, datum.budget) >= 0")
    )
    x = alt.X(f"{cost}:Q", title=title, scale=alt.Scale(zero=False, nice=True))
    y = alt.Y("lost:Q", title="accuracy minus unpruned, points", scale=alt.Scale(zero=True))
    legend = alt.Legend(
        orient="bottom", columns=3, title=None, symbolLimit=0, values=alt.ExprRef("shown")
    )
    color = alt.Color(
        "method:N",
        scale=alt.Scale(domain=rows.labels, range=[looks[label].color for label in rows.labels]),
        legend=legend,
    )
    dash = alt.StrokeDash(
        "method:N",
        scale=alt.Scale(domain=rows.labels, range=[looks[label].dash for label in rows.labels]),
        legend=legend,
    )
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
    whole = [{cost: rows.whole[cost], "lost": 0, "name": "unpruned"}]
    end = alt.Chart(alt.Data(values=whole)).encode(x=f"{cost}:Q", y="lost:Q")
    layers = [
        shown.mark_rule(opacity=0.45).encode(x=x, y="low:Q", y2="high:Q", color=color),
        shown.mark_line(strokeWidth=2).encode(x=x, y=y, color=color, strokeDash=dash),
        shown.mark_point(filled=True, size=60).encode(x=x, y=y, color=color, tooltip=tips),
        shown.mark_text(align="left", dx=6, dy=-6, fontSize=10).encode(
            x=x, y=y, text="budget:N", color=color
        ),
    ]
    if whole[0][cost] is not None:
        layers.append(end.mark_point(shape="diamond", filled=True, size=110, color=UNPRUNED))
        layers.append(
            end.mark_text(align="right", dx=-9, dy=12, color=UNPRUNED).encode(text="name:N")
        )
    chart = alt.layer(*layers).add_params(
        alt.param(name="shown", value=rows.shown), alt.param(name="budgets", value=rows.budgets)
    )
    return _finish(chart.properties(width="container", height=360), f"Accuracy against {title}")


def make_radar(
    tasks: Sequence[str],
    polygons: Mapping[str, Sequence[float | None]],
    looks: Mapping[str, Look],
    scale: tuple[float, float],
    title: str,
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
        Values in the middle and at the rim: the same for charts that are compared.
    title : str
        Above it.
    """
    alt = import_altair()
    values, rings, names, marks = _place_radar(tasks, polygons, scale)
    plain = alt.Scale(domain=[-1.35, 1.35])
    x = alt.X("x:Q", axis=None, scale=plain)
    y = alt.Y("y:Q", axis=None, scale=plain)
    labels = list(polygons)
    color = alt.Color(
        "method:N",
        scale=alt.Scale(domain=labels, range=[looks[label].color for label in labels]),
        legend=alt.Legend(orient="bottom", columns=2, title=None, symbolLimit=0),
    )
    tips = [alt.Tooltip("method:N"), "task:N", alt.Tooltip("value:Q", format=".1f", title="%")]

    def chart(data: Sequence[Mapping[str, Any]]) -> Any:
        return alt.Chart(alt.Data(values=list(data))).encode(x=x, y=y)

    drawn = chart(values)
    chart_of_all = alt.layer(
        chart(rings)
        .mark_line(color="#8886", strokeWidth=1)
        .encode(detail="level:N", order="order:Q"),
        drawn.mark_line(strokeWidth=2).encode(color=color, order="order:Q"),
        drawn.mark_point(filled=True, size=26).encode(color=color, tooltip=tips),
        chart(names).mark_text(fontSize=10).encode(text="task:N"),
        chart(marks).mark_text(fontSize=9, opacity=0.65, dx=9).encode(text="text:N"),
    )
    return _finish(chart_of_all.properties(width=RADAR_SIZE, height=RADAR_SIZE), title)


def make_histogram(
    edges: Sequence[float], counts: Sequence[int], title: str, threshold: float | None
) -> Specification:
    """How coupling is distributed, with the threshold between strong and weak."""
    alt = import_altair()
    bars = [
        {"from": start, "to": stop, "samples": count}
        for start, stop, count in zip(edges, edges[1:], counts, strict=False)
    ]
    layers = [
        alt.Chart(alt.Data(values=bars))
        .mark_bar(color="#0078ff")
        .encode(
            x=alt.X("from:Q", title="coupling η", scale=alt.Scale(zero=False)),
            x2="to:Q",
            y=alt.Y("samples:Q", title="samples"),
            tooltip=["from:Q", "to:Q", "samples:Q"],
        )
    ]
    if threshold is not None:
        layers.append(
            alt.Chart(alt.Data(values=[{"tau": threshold}]))
            .mark_rule(color="#c8102e", strokeDash=[5, 3])
            .encode(x="tau:Q")
        )
    return _finish(alt.layer(*layers).properties(width=RADAR_SIZE, height=180), title)


def make_curves(
    points: Sequence[Mapping[str, Any]],
    title: str,
    axis: str,
    unpruned: float | None,
    *,
    ordered: bool = True,
) -> Specification:
    """Curves with intervals, for ablations.

    Parameters
    ----------
    points : sequence of mapping
        With ``curve``, ``x``, ``y``, ``name`` and, where known, ``low`` and ``high``.
    title, axis : str
        Above, and under the horizontal axis.
    unpruned : float or None
        Accuracy of the model as it is, drawn as a line.
    ordered : bool
        Whether points follow each other from left to right, or in their own order.
    """
    alt = import_altair()
    records = [{**point, "order": order} for order, point in enumerate(points)]
    base = alt.Chart(alt.Data(values=records)).encode(
        x=alt.X("x:Q", title=axis, scale=alt.Scale(zero=False)),
        color=alt.Color("curve:N", title=None, legend=alt.Legend(orient="bottom", columns=3)),
    )
    y = alt.Y("y:Q", title="accuracy %", scale=alt.Scale(zero=False))
    layers = [
        base.transform_filter("isValid(datum.low)")
        .mark_rule(opacity=0.45)
        .encode(y=alt.Y("low:Q", title="accuracy %", scale=alt.Scale(zero=False)), y2="high:Q"),
        base.mark_line().encode(y=y, order="x:Q" if ordered else "order:Q"),
        base.mark_point(filled=True, size=50).encode(
            y=y, tooltip=["name:N", "curve:N", "x:Q", "y:Q", "low:Q", "high:Q"]
        ),
    ]
    if unpruned is not None:
        layers.append(
            alt.Chart(alt.Data(values=[{"y": unpruned}]))
            .mark_rule(color=UNPRUNED, strokeDash=[5, 3])
            .encode(y="y:Q")
        )
    return _finish(alt.layer(*layers).properties(width=360, height=260), title)


def _place_radar(
    tasks: Sequence[str], polygons: Mapping[str, Sequence[float | None]], scale: tuple[float, float]
) -> tuple[list[dict[str, Any]], ...]:
    """Where corners, rings, names and numbers of a radar chart lie."""
    middle, rim = scale
    values = [
        {"method": label, "order": order, "task": tasks[order % len(tasks)], "value": value}
        | _place(order, len(tasks), (value - middle) / (rim - middle))
        for label, found in polygons.items()
        for order, value in enumerate([*found, found[0]])
        if value is not None
    ]
    rings = [
        {"level": level, "order": order} | _place(order, len(tasks), level / LEVELS)
        for level in range(1, LEVELS + 1)
        for order in range(len(tasks) + 1)
    ]
    names = [{"task": task} | _place(order, len(tasks), 1.13) for order, task in enumerate(tasks)]
    marks = [
        {"text": f"{middle + (rim - middle) * level / LEVELS:.0f}"}
        | _place(0, len(tasks), level / LEVELS)
        for level in range(LEVELS + 1)
    ]
    return values, rings, names, marks


def _place(order: int, count: int, radius: float) -> dict[str, float]:
    """Where an axis is at a distance from the middle; the first points up."""
    angle = 2 * math.pi * order / count
    return {"x": round(radius * math.sin(angle), 4), "y": round(radius * math.cos(angle), 4)}


def _finish(chart: Any, title: str) -> Specification:
    specification: Specification = chart.properties(title=title).to_dict(validate=False)
    specification["config"] = {
        "view": {"stroke": None},
        "font": "system-ui, sans-serif",
        "background": "transparent",
    }
    return specification
