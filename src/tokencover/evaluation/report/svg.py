"""Pieces of SVG: elements, text and scales. The same input gives the same bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

CHART_TEXT_COLOR: Final = "#1f2328"
FAINT_COLOR: Final = "#d8dee4"
QUIET_COLOR: Final = "#59636e"
LINE_COLORS: Final = (
    "#d1495b", "#1f77b4", "#2a9d5c", "#8e5bb5", "#c77d0a", "#17859b", "#7a5c3e", "#6b7280",
)  # fmt: skip
"""The first is for the method that a report is about."""
DASHES: Final = ("", "6 3", "2 3", "8 3 2 3")
"""Lines of one color, once all colors have been used."""


@dataclass(frozen=True)
class Scale:
    """A linear map from values to pixels.

    Attributes
    ----------
    low, high : float
        Values, ascending.
    start, end : float
        The pixels where they lie.
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        """Round values within the range."""
        return list_round_values(self.low, self.high)


def make_scale(values: Sequence[float], start: float, end: float) -> Scale:
    """A scale that holds all values with a little room around them."""
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return Scale(low - room, high + room, start, end)


def list_round_values(low: float, high: float, about: int = 5) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten, about as many as asked for."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def make_element(name: str, *children: str, **attributes: str | float) -> str:
    """An element; attributes may end with ``_`` and have ``_`` for ``-``, children are SVG."""
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_write_value(value)}"'
        for key, value in attributes.items()
        if value != ""
    )
    return f"<{name}{shown}>{''.join(children)}</{name}>" if children else f"<{name}{shown}/>"


def make_label(x: float, y: float, words: str, **attributes: str | float) -> str:
    """A text at a place."""
    return make_element(
        "text", escape(words), x=x, y=y, **{"fill": CHART_TEXT_COLOR, "font_size": 12, **attributes}
    )


def make_hint(words: str) -> str:
    """What browsers show, and screen readers read, for the element that it is in."""
    return make_element("title", escape(words))


def make_picture(width: float, height: float, title: str, *children: str) -> str:
    """A whole picture that stands alone or within a page."""
    return make_element(
        "svg",
        make_hint(title),
        "\n",
        "\n".join(children),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {write_pixels(width)} {write_pixels(height)}",
        width=width,
        height=height,
        role="img",
        font_family="system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif",
    )


def write_points(places: Sequence[tuple[float, float]]) -> str:
    """Places as polylines and polygons want them."""
    return " ".join(f"{write_pixels(x)},{write_pixels(y)}" for x, y in places)


def write_pixels(value: float) -> str:
    """A coordinate, to a hundredth of a pixel."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def write_number(value: float, digits: int = 10) -> str:
    """A number for people, with so many digits after the point at most."""
    return f"{round(value, digits):g}"


def choose_stroke(place: int) -> dict[str, str]:
    """Color and dashes of the line at a place among others; no other has the color of the first."""
    if place == 0:
        return {"stroke": LINE_COLORS[0], "stroke_dasharray": ""}
    turn, color = divmod(place - 1, len(LINE_COLORS) - 1)
    return {"stroke": LINE_COLORS[1 + color], "stroke_dasharray": DASHES[turn % len(DASHES)]}


def _write_value(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else write_pixels(value)
