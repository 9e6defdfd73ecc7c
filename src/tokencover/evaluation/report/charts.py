"""Vega-Lite charts: methods' looks, legends and radar charts.

`shown` and `budgets` are parameters of a chart: the page changes them, a file has their defaults.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from zlib import crc32

from tokencover.errors import import_extra

COLORS: Final = {
    "mob": "#c8102e",
    "fastv": "#1f77b4",
    "sparsevlm": "#2ca02c",
    "pyramiddrop": "#9467bd",
    "visionzip": "#8c564b",
    "dart": "#e377c2",
    "divprune": "#17becf",
    "cdpruner": "#bcbd22",
    "tokencarve": "#ff7f0e",
    "twigvlm": "#393b79",
    "mustdrop": "#637939",
    "fastervlm": "#8c6d31",
    "hired": "#ad494a",
    "prumerge": "#a55194",
    "prumerge+": "#6b6ecf",
    "tome": "#3182bd",
    "ficoco_v": "#31a354",
    "scope": "#756bb1",
    "look_ahead": "#636363",
    "mob_stages": "#08306b",
    "farthest": "#6baed6",
    "nearest": "#fd8d3c",
    "random": "#969696",
    "grid": "#bdbdbd",
    "downsample": "#525252",
}
"""By the method's name: equal on all pages."""
SPARE: Final = ("#e6550d", "#0868ac", "#006d2c", "#54278f", "#a63603", "#08519c")
"""For methods of other packages."""
DASHES: Final = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
"""For several settings of one method."""
UNPRUNED_COLOR: Final = "#111111"


@dataclass(frozen=True, slots=True)
class Look:
    """Color and line of a method with its settings."""

    color: str
    dash: list[int]


def choose_looks(labels: Iterable[str]) -> dict[str, Look]:
    """Return a look for each label; settings of one method share a color."""
    looks: dict[str, Look] = {}
    counts: dict[str, int] = {}
    for label in sorted(labels, key=lambda text: (len(text), text)):
        name = label.partition(":")[0]
        color = COLORS.get(name) or SPARE[crc32(name.encode()) % len(SPARE)]
        number = counts.get(name, 0)
        counts[name] = number + 1
        looks[label] = Look(color, DASHES[number % len(DASHES)])
    return looks


Specification = dict[str, Any]
"""A chart in Vega-Lite."""

RADAR_SIZE: Final = 250
"""Height of a radar chart in pixels, small enough for a phone."""
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
    """Import Altair, or raise an error with its install command."""
    return import_extra(
        "altair", "drawing charts", "tokencover[figures]", "read the tables: --markdown, --csv"
    )


def encode_methods(labels: Sequence[str], looks: Mapping[str, Look]) -> tuple[Any, Any]:
    """Return color and dashes of methods, with one legend of those that are shown."""
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
    """Return shapes of budgets and of the unpruned model, with their legend."""
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
    """Draw tasks as axes, and a polygon for each method: one value per axis, or None.

    `scale` has the values in the middle, at the rim, and from ring to ring; `shown` the methods
    that are drawn at first.
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
    """Coordinates of corners, rings, names and numbers."""
    middle, rim, ring = scale
    levels = round((rim - middle) / ring)
    # The reference comes first, and is drawn last: on top.
    values = [
        {"method": label, "order": order, "task": tasks[order % len(tasks)], "value": value}
        | _place(order, len(tasks), (value - middle) / (rim - middle))
        for label, corners in reversed(list(polygons.items()))
        for order, value in enumerate([*corners, corners[0]])
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
    """Coordinates of a point on an axis; the first axis points up."""
    angle = 2 * math.pi * order / count
    return {"x": round(radius * math.sin(angle), 4), "y": round(radius * math.cos(angle), 4)}


def _choose_side(order: int, count: int) -> str:
    """Alignment of an axis name, away from the chart."""
    across = math.sin(2 * math.pi * order / count)
    return "center" if abs(across) < 0.1 else "left" if across > 0 else "right"


def finish_chart(chart: Any, title: str) -> Specification:
    """Return a chart with its title and the common style, as plain values."""
    specification: Specification = chart.properties(title=title).to_dict(validate=False)
    specification["config"] = {
        "view": {"stroke": None},
        "font": "system-ui, sans-serif",
        "background": "transparent",
    }
    return specification
