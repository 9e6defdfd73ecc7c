"""Charts as SVG: lines with intervals, places with labels, and histograms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tokencover.errors import InputError
from tokencover.evaluation.report.label_places import LETTER, LabelPlaces
from tokencover.evaluation.report.svg import (
    CHART_TEXT_COLOR,
    FAINT_COLOR,
    LINE_COLORS,
    QUIET_COLOR,
    Scale,
    choose_stroke,
    make_element,
    make_hint,
    make_label,
    make_picture,
    make_scale,
    write_number,
    write_points,
)

ChartSize = tuple[float, float]

CHART_SIZE: Final = (460.0, 300.0)
WIDE: Final = (940.0, 460.0)
LEFT, RIGHT, TOP, BOTTOM = 58.0, 14.0, 36.0, 48.0
LEGEND_ROW: Final = 16.0
DOT: Final = 3.5


@dataclass(frozen=True)
class Point:
    """A measured value, with the ends of its interval if there is one.

    Attributes
    ----------
    x, y : float
        Where it lies.
    low, high : float, optional
        Ends of the interval around `y`.
    name : str
        What to say about it; by default its numbers.
    """

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    name: str = ""


@dataclass(frozen=True)
class Series:
    """Points that belong together.

    Attributes
    ----------
    name : str
        What they are called.
    points : tuple of Point
        At least one.
    look : int, optional
        Which color and dashes, see `choose_stroke`; by default those of its place among series.
    """

    name: str
    points: tuple[Point, ...]
    look: int | None = None


@dataclass(frozen=True)
class Labels:
    """What a chart says in words.

    Attributes
    ----------
    title, x, y : str
        Of the chart and of its axes.
    line : str
        Of the horizontal line for reference, if there is one.
    """

    title: str
    x: str
    y: str
    line: str = ""


@dataclass(frozen=True)
class Frame:
    """The axes of a chart."""

    across: Scale
    up: Scale

    def place(self, point: Point) -> tuple[float, float]:
        """The pixels of a point."""
        return self.across(point.x), self.up(point.y)

    def draw(self, labels: Labels) -> list[str]:
        """Axes with ticks, and the words on them."""
        bottom, top = self.up.start, self.up.end
        left, right = self.across.start, self.across.end
        parts = []
        for value in self.up.ticks:
            y = self.up(value)
            parts.append(make_element("line", x1=left, y1=y, x2=right, y2=y, stroke=FAINT_COLOR))
            parts.append(_draw_number(left - 6, y + 4, value, "end"))
        for value in self.across.ticks:
            x = self.across(value)
            parts.append(
                make_element("line", x1=x, y1=bottom, x2=x, y2=bottom + 4, stroke=QUIET_COLOR)
            )
            parts.append(_draw_number(x, bottom + 17, value, "middle"))
        parts.append(
            make_element("line", x1=left, y1=bottom, x2=right, y2=bottom, stroke=QUIET_COLOR)
        )
        middle, height = (left + right) / 2, (top + bottom) / 2
        turned = f"rotate(-90 14 {write_number(height, 2)})"
        return [
            *parts,
            make_label(left, 20, labels.title, font_size=14, font_weight="600"),
            make_label(middle, bottom + 36, labels.x, text_anchor="middle", fill=QUIET_COLOR),
            make_label(
                14, height, labels.y, text_anchor="middle", fill=QUIET_COLOR, transform=turned
            ),
        ]


def draw_lines(series: Sequence[Series], labels: Labels, line: float | None = None) -> str:
    """Lines through measured values, with whiskers where intervals are known.

    Parameters
    ----------
    series : sequence of Series
        Each from left to right.
    labels : Labels
        Title and axes.
    line : float, optional
        A value to compare with, drawn across.
    """
    frame = _make_frame(series, labels, line, CHART_SIZE)
    parts = frame.draw(labels) + _draw_reference(frame, labels, line)
    for look, each in zip(_choose_looks(series), series, strict=True):
        color = look["stroke"]
        spots = [frame.place(point) for point in each.points]
        parts.append(
            make_element(
                "polyline", points=write_points(spots), fill="none", stroke_width=2, **look
            )
        )
        parts += [
            _draw_whisker(frame, point, color) for point in each.points if point.low is not None
        ]
        parts += [_draw_dot(frame, point, each.name, labels, color) for point in each.points]
    places = _place_legend([each.name for each in series])
    height = CHART_SIZE[1] + LEGEND_ROW * (1 + places[-1][1])
    return make_picture(CHART_SIZE[0], height, labels.title, *parts, *_draw_legend(series, places))


def draw_scatter(
    series: Sequence[Series],
    labels: Labels,
    line: float | None = None,
    size: ChartSize = CHART_SIZE,
) -> str:
    """Places joined by thin lines, each series named beside its place farthest to the left.

    Parameters
    ----------
    series, labels, line
        See `draw_lines`.
    size : tuple of float
        Width and height.
    """
    frame = _make_frame(series, labels, line, size)
    parts = frame.draw(labels) + _draw_reference(frame, labels, line)
    names = []
    area = frame.across.start, frame.up.end, frame.across.end, frame.up.start
    names_beside = LabelPlaces(
        area, [frame.place(point) for each in series for point in each.points]
    )
    for look, each in zip(_choose_looks(series), series, strict=True):
        ordered = sorted(each.points, key=lambda point: (point.x, point.y))
        spots = [frame.place(point) for point in ordered]
        if len(spots) > 1:
            path = write_points(spots)
            parts.append(
                make_element("polyline", points=path, fill="none", stroke_opacity=0.45, **look)
            )
        parts += [_draw_dot(frame, point, each.name, labels, look["stroke"]) for point in ordered]
        names.append(names_beside.put(spots[0], each.name, look["stroke"]))
    return make_picture(*size, labels.title, *parts, *names)


def draw_histogram(
    edges: Sequence[float], counts: Sequence[int], labels: Labels, mark: float | None = None
) -> str:
    """Bars over bins, with a mark across the axis if one is given.

    Parameters
    ----------
    edges : sequence of float
        Of the bins, ascending, one more than bins.
    counts : sequence of int
        Of each bin.
    labels : Labels
        Title and axes; `Labels.line` names the mark.
    mark : float, optional
        A value on the horizontal axis.
    """
    if len(edges) != len(counts) + 1:
        raise InputError(f"{len(counts)} bins need {len(counts) + 1} edges, got {len(edges)}.")
    across = Scale(edges[0], edges[-1], LEFT, CHART_SIZE[0] - RIGHT)
    up = Scale(0.0, 1.08 * max(1, *counts), CHART_SIZE[1] - BOTTOM, TOP)
    parts = Frame(across, up).draw(labels)
    for low, high, count in zip(edges, edges[1:], counts, strict=False):
        if count:
            words = make_hint(f"{write_number(low, 4)} to {write_number(high, 4)}: {count}")
            width, height = across(high) - across(low), up.start - up(count)
            parts.append(
                make_element(
                    "rect", words, x=across(low), y=up(count), width=width, height=height,
                    fill=LINE_COLORS[1], fill_opacity=0.75,
                )
            )  # fmt: skip
    if mark is not None and edges[0] <= mark <= edges[-1]:
        x = across(mark)
        ends = {"x1": x, "x2": x, "y1": TOP, "y2": up.start}
        parts.append(
            make_element(
                "line", **ends, stroke=LINE_COLORS[0], stroke_width=1.5, stroke_dasharray="4 3"
            )
        )
        side = "end" if x > CHART_SIZE[0] / 2 else "start"
        shift = -5 if side == "end" else 5
        parts.append(
            make_label(x + shift, TOP + 10, labels.line, text_anchor=side, fill=LINE_COLORS[0])
        )
    return make_picture(*CHART_SIZE, labels.title, *parts)


def _choose_looks(series: Sequence[Series]) -> list[dict[str, str]]:
    return [
        choose_stroke(place if each.look is None else each.look)
        for place, each in enumerate(series)
    ]


def _make_frame(
    series: Sequence[Series], labels: Labels, line: float | None, size: ChartSize
) -> Frame:
    found = [point for each in series for point in each.points]
    if not found or not all(each.points for each in series):
        raise InputError(f"there is nothing to draw in {labels.title!r}: a series has no points.")
    ends = [end for point in found for end in (point.low, point.high) if end is not None]
    heights = [point.y for point in found] + ends + ([] if line is None else [line])
    return Frame(
        make_scale([point.x for point in found], LEFT, size[0] - RIGHT),
        make_scale(heights, size[1] - BOTTOM, TOP),
    )


def _draw_number(x: float, y: float, value: float, anchor: str) -> str:
    return make_label(x, y, write_number(value), text_anchor=anchor, fill=QUIET_COLOR, font_size=11)


def _draw_reference(frame: Frame, labels: Labels, line: float | None) -> list[str]:
    if line is None:
        return []
    y, right = frame.up(line), frame.across.end
    ends = {"x1": frame.across.start, "x2": right, "y1": y, "y2": y}
    words = make_hint(f"{labels.line}: {write_number(line, 2)}")
    return [
        make_element("line", words, **ends, stroke=CHART_TEXT_COLOR, stroke_dasharray="1 3"),
        make_label(right, y - 4, labels.line, text_anchor="end", fill=QUIET_COLOR, font_size=11),
    ]


def _draw_dot(frame: Frame, point: Point, name: str, labels: Labels, color: str) -> str:
    x, y = frame.place(point)
    numbers = f"{labels.x} {write_number(point.x, 3)}, {labels.y} {write_number(point.y, 2)}"
    interval = (
        ""
        if point.low is None or point.high is None
        else f" [{write_number(point.low, 2)}, {write_number(point.high, 2)}]"
    )
    words = f"{name}, {point.name}: " if point.name else f"{name}: "
    return make_element(
        "circle", make_hint(f"{words}{numbers}{interval}"), cx=x, cy=y, r=DOT, fill=color
    )


def _draw_whisker(frame: Frame, point: Point, color: str) -> str:
    low, high = point.low, point.high
    if low is None or high is None:
        raise InputError(f"the point at {point.x} has one end of an interval: give both or none.")
    x = frame.across(point.x)
    return make_element(
        "line", x1=x, x2=x, y1=frame.up(low), y2=frame.up(high), stroke=color, stroke_opacity=0.5
    )


def _place_legend(names: Sequence[str]) -> list[tuple[float, int]]:
    """Left end and row of each entry; a row is filled before the next one begins."""
    places: list[tuple[float, int]] = []
    x, row = LEFT, 0
    for name in names:
        width = 30 + LETTER * len(name)
        if x > LEFT and x + width > CHART_SIZE[0]:
            x, row = LEFT, row + 1
        places.append((x, row))
        x += width
    return places


def _draw_legend(series: Sequence[Series], places: Sequence[tuple[float, int]]) -> list[str]:
    parts = []
    for look, each, (x, row) in zip(_choose_looks(series), series, places, strict=True):
        y = CHART_SIZE[1] + LEGEND_ROW * row + 4
        ends = {"x1": x, "x2": x + 16, "y1": y, "y2": y}
        parts.append(make_element("line", **ends, stroke_width=3, **look))
        parts.append(make_label(x + 21, y + 4, each.name, font_size=11))
    return parts
