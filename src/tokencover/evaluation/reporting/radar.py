"""The radar chart: one axis for each task, one polygon for each method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tokencover.errors import InputError
from tokencover.evaluation.reporting.svg import (
    FAINT,
    QUIET,
    Scale,
    hint,
    label,
    picture,
    points,
    round_values,
    short,
    stroke,
    tag,
)

WIDTH: Final = 520.0
RADIUS: Final = 140.0
MIDDLE: Final = (260.0, 210.0)
LEGEND_TOP: Final = 400.0
LEGEND_ROW: Final = 17.0
COLUMNS: Final = 2
LONGEST: Final = 16
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
        Which color and dashes, see `stroke`; 0 stands out.
    """

    name: str
    values: tuple[float, ...]
    look: int


def radar(axes: Sequence[str], polygons: Sequence[Polygon], title: str, unit: str) -> str:
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
    scale = _scale([value for each in polygons for value in each.values])
    parts = [label(8, 20, title, font_size=14, font_weight="600")]
    parts += _rings(scale, len(axes)) + _spokes(axes)
    parts += [_polygon(each, axes, scale, unit) for each in reversed(polygons)]
    for place, each in enumerate(polygons):
        x, y = (
            20 + WIDTH / COLUMNS * (place % COLUMNS),
            LEGEND_TOP + LEGEND_ROW * (place // COLUMNS),
        )
        ends = {"x1": x, "x2": x + 16, "y1": y, "y2": y}
        parts.append(tag("line", **ends, stroke_width=3, **stroke(each.look)))
        parts.append(label(x + 21, y + 4, each.name, font_size=11))
    rows = -(-len(polygons) // COLUMNS)
    return picture(WIDTH, LEGEND_TOP + LEGEND_ROW * rows, title, *parts)


def _scale(values: Sequence[float]) -> Scale:
    """From the middle outwards; the middle is not 0, or all polygons would look alike."""
    low, high = min(values), max(100.0, *values)
    room = 0.25 * (high - low) or 1.0
    return Scale(max(0.0, low - room), high, 0.0, RADIUS)


def _place(axis: int, count: int, distance: float) -> tuple[float, float]:
    angle = 2 * math.pi * axis / count - math.pi / 2
    return MIDDLE[0] + distance * math.cos(angle), MIDDLE[1] + distance * math.sin(angle)


def _rings(scale: Scale, count: int) -> list[str]:
    parts = []
    for value in round_values(scale.low, scale.high, 4):
        corners = [_place(axis, count, scale(value)) for axis in range(count)]
        color = QUIET if value == 100 else FAINT
        parts.append(tag("polygon", points=points(corners), fill="none", stroke=color))
        x, y = corners[0]
        parts.append(label(x + 3, y + 10, short(value), font_size=9, fill=QUIET))
    return parts


def _spokes(axes: Sequence[str]) -> list[str]:
    parts = []
    for axis, name in enumerate(axes):
        x, y = _place(axis, len(axes), RADIUS)
        parts.append(tag("line", x1=MIDDLE[0], y1=MIDDLE[1], x2=x, y2=y, stroke=FAINT))
        x, y = _place(axis, len(axes), RADIUS + 14)
        side = "middle" if abs(x - MIDDLE[0]) < 20 else "start" if x > MIDDLE[0] else "end"
        shown = name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
        parts.append(label(x, y + 4, shown, font_size=11, text_anchor=side))
    return parts


def _polygon(polygon: Polygon, axes: Sequence[str], scale: Scale, unit: str) -> str:
    corners = [_place(axis, len(axes), scale(value)) for axis, value in enumerate(polygon.values)]
    pairs = zip(axes, polygon.values, strict=True)
    words = "; ".join(f"{axis} {short(round(value, 1))}" for axis, value in pairs)
    look = stroke(polygon.look)
    stands_out = polygon.look == 0
    return tag(
        "polygon",
        hint(f"{polygon.name}, {unit}: {words}"),
        points=points(corners),
        fill=look["stroke"],
        fill_opacity=0.08 if stands_out else 0.0,
        stroke_width=2.5 if stands_out else 1.4,
        **look,
    )
