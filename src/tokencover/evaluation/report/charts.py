"""Vega-Lite charts: methods' looks, radar charts, curves, coupling, and their files.

`shown` and `budgets` are parameters of a chart: the page changes them, a file has their defaults.
"""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from tokencover.errors import InputError, import_extra
from tokencover.files import write_atomically

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


def encode_methods(looks: Mapping[str, Look]) -> tuple[Any, Any]:
    """Return color and dashes of methods, with one legend of those that are shown."""
    alt = import_altair()
    longest = LEGEND_GAP + LETTER_WIDTH * max(map(len, looks), default=0)
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

    def encode(channel: Any, name: str) -> Any:
        values = [getattr(look, name) for look in looks.values()]
        scale = alt.Scale(domain=list(looks), range=values)
        return channel("method:N", scale=scale, legend=legend)

    return encode(alt.Color, "color"), encode(alt.StrokeDash, "dash")


def filter_shown(chart: Any, *, budgets: bool = True) -> Any:
    """Return a chart of the methods, and the budgets, that are shown."""
    chart = chart.transform_filter("indexof(shown, datum.method) >= 0")
    return chart.transform_filter("indexof(budgets, datum.budget) >= 0") if budgets else chart


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
    color, dash = encode_methods({label: looks[label] for label in polygons})
    tips = [alt.Tooltip("method:N"), "task:N", alt.Tooltip("value:Q", format=".1f", title="%")]

    def chart(data: Sequence[Mapping[str, Any]]) -> Any:
        return alt.Chart(alt.Data(values=list(data))).encode(x=x, y=y)

    drawn = filter_shown(chart(values), budgets=False)
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


# ---- curves of ablations (Figures 4 to 6), and coupling (1b, 4, 9) ---------------------------

HISTOGRAM_WIDTH: Final = 300
BLUE: Final = "#0078ff"
RED: Final = "#c8102e"
BOX_WIDTH: Final = 26
"""Pixels per box."""
BOX_PARTS: Final = ("least", "quarter", "median", "three_quarters", "most")


def make_histogram(
    edges: Sequence[float], counts: Sequence[int], title: str, threshold: float | None
) -> Specification:
    """Draw the distribution of coupling, with the threshold between strong and weak."""
    alt = import_altair()
    bars = [
        {"from": start, "to": stop, "samples": count}
        for start, stop, count in zip(edges, edges[1:], counts, strict=False)
    ]
    layers = [
        alt.Chart(alt.Data(values=bars))
        .mark_bar(color=BLUE)
        .encode(
            x=alt.X("from:Q", bin="binned", title="coupling η", scale=alt.Scale(zero=False)),
            x2="to:Q",
            y=alt.Y("samples:Q", title="samples"),
            tooltip=[
                *(alt.Tooltip(f"{end}:Q", format=".3f") for end in ("from", "to")),
                "samples:Q",
            ],
        )
    ]
    if threshold is not None:
        line = alt.Chart(alt.Data(values=[{"tau": threshold}])).encode(x="tau:Q")
        layers.append(line.mark_rule(color=RED, strokeDash=[5, 3]))
        for text, look in (("← strong", {"align": "right", "dx": -5}), ("weak →", {"dx": 5})):
            layers.append(
                line.mark_text(
                    text=text, color=RED, fontSize=10, **{"align": "left", **look}
                ).encode(y=alt.value(8))
            )
    return finish_chart(alt.layer(*layers).properties(width=HISTOGRAM_WIDTH, height=180), title)


def make_curves(
    points: Sequence[Mapping[str, Any]],
    title: str,
    axis: str,
    unpruned: float | None,
    *,
    ordered: bool = True,
    boxes: Sequence[Mapping[str, Any]] = (),
) -> Specification:
    """Draw curves with intervals, for ablations.

    `points` have ``curve``, ``x``, ``y``, ``name`` and optionally ``low``, ``high`` and ``best``,
    which is larger. `unpruned` is drawn as a line. Points are connected from left to right if
    `ordered`. `boxes` are drawn to the right, see `draw_boxes`.
    """
    alt = import_altair()
    records = [{**point, "order": order} for order, point in enumerate(points)]
    scale = alt.Scale(zero=False)
    base = alt.Chart(alt.Data(values=records)).encode(
        x=alt.X("x:Q", title=axis, scale=scale),
        color=alt.Color(
            "curve:N",
            title=None,
            sort=None,
            legend=alt.Legend(orient="bottom", columns=1, labelLimit=340, symbolOpacity=1),
        ),
    )
    y = alt.Y("y:Q", title="accuracy %", scale=scale)
    layers = [
        base.transform_filter("isValid(datum.low)")
        .mark_rule(opacity=0.45)
        .encode(y=alt.Y("low:Q", title="accuracy %", scale=scale), y2="high:Q"),
        base.mark_line().encode(y=y, order="x:Q" if ordered else "order:Q"),
        base.mark_point(filled=True, opacity=1).encode(
            y=y,
            size=alt.condition("datum.best", alt.value(130), alt.value(45)),
            tooltip=["name:N", "curve:N", "x:Q", "y:Q", "low:Q", "high:Q"],
        ),
    ]
    if unpruned is not None:
        layers.append(
            alt.Chart(alt.Data(values=[{"y": unpruned}]))
            .mark_rule(color=UNPRUNED_COLOR, strokeDash=[5, 3])
            .encode(y="y:Q")
        )
    curves = alt.layer(*layers).properties(width=320, height=260)
    if not boxes:
        return finish_chart(curves, title)
    return finish_chart(alt.hconcat(curves, draw_boxes(boxes)), title)


def draw_boxes(boxes: Sequence[Mapping[str, Any]]) -> Any:
    """Draw one box plot of coupling per task; `boxes` have ``task`` and `BOX_PARTS`."""
    alt = import_altair()
    base = alt.Chart(alt.Data(values=list(boxes))).encode(
        x=alt.X("task:N", title=None, sort=None, axis=alt.Axis(labelAngle=-60, labelLimit=110)),
        tooltip=["task:N", *(alt.Tooltip(f"{name}:Q", format=".3f") for name in BOX_PARTS)],
    )
    scale = alt.Scale(zero=False)
    return alt.layer(
        base.mark_rule(color=BLUE).encode(
            y=alt.Y("least:Q", title="coupling η", scale=scale), y2="most:Q"
        ),
        base.mark_bar(color=BLUE, size=BOX_WIDTH // 2).encode(
            y=alt.Y("quarter:Q", scale=scale), y2="three_quarters:Q"
        ),
        base.mark_tick(color="white", thickness=2, size=BOX_WIDTH // 2).encode(y="median:Q"),
    ).properties(width=max(60, BOX_WIDTH * len(boxes)), height=260)


# ---- files ----------------------------------------------------------------------------------

FORMATS: Final = ("pdf", "svg", "png")
WIDTH: Final = 480
"""Pixels of a chart that fills its container."""
PNG_SCALE: Final = 3.0


def check_formats(formats: Sequence[str]) -> None:
    """Raise `InputError` for formats of files that cannot be written."""
    for name in formats:
        if name not in FORMATS:
            raise InputError(f"figures can be written as {', '.join(FORMATS)}, not as {name!r}.")
    if not formats:
        raise InputError(f"no format is given: --format {','.join(FORMATS)}.")


def write_figures(
    charts: Mapping[str, Specification], folder: Path, formats: Sequence[str]
) -> list[Path]:
    """Write charts by name in every format, and return the files."""
    check_formats(formats)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, chart in charts.items():
        for kind in formats:
            path = folder / f"{name_file(name)}.{kind}"
            write_atomically(path, render_chart(chart, kind))
            written.append(path)
    return written


def render_chart(chart: Specification, kind: str) -> bytes | str:
    """Return a chart as the content of a file."""
    converter: Any = import_extra(
        "vl_convert", "writing charts", "tokencover[figures]", "use the page, which has them"
    )
    fixed = copy.deepcopy(chart)
    if fixed.get("width") == "container":
        fixed["width"] = WIDTH
    fixed.setdefault("config", {})["background"] = "white"
    options = {"scale": PNG_SCALE} if kind == "png" else {}
    content: bytes | str = getattr(converter, f"vegalite_to_{kind}")(fixed, **options)
    return content


def name_file(name: str) -> str:
    """Return a name for any file system."""
    return re.sub(r"[^A-Za-z0-9.+]+", "-", name).strip("-") or "figure"
