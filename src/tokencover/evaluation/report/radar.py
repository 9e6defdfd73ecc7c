"""The radar chart: one axis for each task, one polygon for each method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tokencover.errors import InputError
from tokencover.evaluation.report.svg import (
    FAINT_COLOR,
    QUIET_COLOR,
    Scale,
    choose_stroke,
    list_round_values,
    make_element,
    make_hint,
    make_label,
    make_picture,
    write_number,
    write_points,
)

RADAR_WIDTH: Final = 520.0
RADAR_RADIUS: Final = 140.0
MIDDLE: Final = (260.0, 210.0)
LEGEND_TOP: Final = 400.0
RADAR_LEGEND_ROW: Final = 17.0
LEGEND_COLUMNS: Final = 2
LONGEST_AXIS: Final = 16
"""Letters of an axis' name that fit beside the chart."""


@dataclass(frozen=True)
class Polygon:
    """What is drawn of one method.

    Attributes
    ----------
    name : str
        What it is called.
    values : tuple of float
        One for each axis, in percent.
    look : int
        Which color and dashes, see `choose_stroke`; 0 stands out.
    """

    name: str
    values: tuple[float, ...]
    look: int


def draw_radar(axes: Sequence[str], polygons: Sequence[Polygon], title: str, unit: str) -> str:
    """Draw scores relative to something, in percent.

    Parameters
    ----------
    axes : sequence of str
        At least three.
    polygons : sequence of Polygon
        The first is drawn last, on top.
    title : str
        Of the chart.
    unit : str
        What values are.
    """
    if len(axes) < 3:
        raise InputError(f"a radar chart needs at least 3 axes, got {len(axes)}.")
    if wrong := [each.name for each in polygons if len(each.values) != len(axes)]:
        raise InputError(f"{wrong[0]} does not have a value for each of the {len(axes)} axes.")
    scale = _make_scale([value for each in polygons for value in each.values])
    parts = [make_label(8, 20, title, font_size=14, font_weight="600")]
    parts += _draw_rings(scale, len(axes)) + _draw_spokes(axes)
    parts += [_draw_polygon(each, axes, scale, unit) for each in reversed(polygons)]
    for place, each in enumerate(polygons):
        x, y = (
            20 + RADAR_WIDTH / LEGEND_COLUMNS * (place % LEGEND_COLUMNS),
            LEGEND_TOP + RADAR_LEGEND_ROW * (place // LEGEND_COLUMNS),
        )
        ends = {"x1": x, "x2": x + 16, "y1": y, "y2": y}
        parts.append(make_element("line", **ends, stroke_width=3, **choose_stroke(each.look)))
        parts.append(make_label(x + 21, y + 4, each.name, font_size=11))
    rows = -(-len(polygons) // LEGEND_COLUMNS)
    return make_picture(RADAR_WIDTH, LEGEND_TOP + RADAR_LEGEND_ROW * rows, title, *parts)


def _make_scale(values: Sequence[float]) -> Scale:
    """From the middle outwards; the middle is not 0, or all polygons would look alike."""
    low, high = min(values), max(100.0, *values)
    room = 0.25 * (high - low) or 1.0
    return Scale(max(0.0, low - room), high, 0.0, RADAR_RADIUS)


def _find_place(axis: int, count: int, distance: float) -> tuple[float, float]:
    angle = 2 * math.pi * axis / count - math.pi / 2
    return MIDDLE[0] + distance * math.cos(angle), MIDDLE[1] + distance * math.sin(angle)


def _draw_rings(scale: Scale, count: int) -> list[str]:
    parts = []
    for value in list_round_values(scale.low, scale.high, 4):
        corners = [_find_place(axis, count, scale(value)) for axis in range(count)]
        color = QUIET_COLOR if value == 100 else FAINT_COLOR
        parts.append(
            make_element("polygon", points=write_points(corners), fill="none", stroke=color)
        )
        x, y = corners[0]
        parts.append(make_label(x + 3, y + 10, write_number(value), font_size=9, fill=QUIET_COLOR))
    return parts


def _draw_spokes(axes: Sequence[str]) -> list[str]:
    parts = []
    for axis, name in enumerate(axes):
        x, y = _find_place(axis, len(axes), RADAR_RADIUS)
        parts.append(
            make_element("line", x1=MIDDLE[0], y1=MIDDLE[1], x2=x, y2=y, stroke=FAINT_COLOR)
        )
        x, y = _find_place(axis, len(axes), RADAR_RADIUS + 14)
        side = "middle" if abs(x - MIDDLE[0]) < 20 else "start" if x > MIDDLE[0] else "end"
        shown = name if len(name) <= LONGEST_AXIS else f"{name[: LONGEST_AXIS - 1]}…"
        parts.append(make_label(x, y + 4, shown, font_size=11, text_anchor=side))
    return parts


def _draw_polygon(polygon: Polygon, axes: Sequence[str], scale: Scale, unit: str) -> str:
    corners = [
        _find_place(axis, len(axes), scale(value)) for axis, value in enumerate(polygon.values)
    ]
    pairs = zip(axes, polygon.values, strict=True)
    words = "; ".join(f"{axis} {write_number(value, 1)}" for axis, value in pairs)
    look = choose_stroke(polygon.look)
    stands_out = polygon.look == 0
    return make_element(
        "polygon",
        make_hint(f"{polygon.name}, {unit}: {words}"),
        points=write_points(corners),
        fill=look["stroke"],
        fill_opacity=0.08 if stands_out else 0.0,
        stroke_width=2.5 if stands_out else 1.4,
        **look,
    )
