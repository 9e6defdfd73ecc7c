"""Where labels stand beside the places of a chart, so that one can read them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tokencover.evaluation.report.svg import make_label

LETTER: Final = 6.2
"""Width of a letter of size 11, about."""
LINE: Final = 12.0
"""Height of a line of such letters."""
PLACE_REACH: Final = 3.5
"""How far a place itself reaches."""
GAP: Final = 6.0
"""Between a place and its name."""
SHIFTS: Final = (4.0, -8.0, 16.0, -20.0, 28.0, -32.0, 40.0, -44.0, 52.0, -56.0)
"""Where a name may stand, down or up from its place, the best first."""

LabelBox = tuple[float, float, float, float]
"""Left, top, right and bottom end."""


class LabelPlaces:
    """Puts one name after the other where nothing is yet.

    Parameters
    ----------
    area : LabelBox
        Where names may stand.
    places : sequence of tuple of float
        What they must not hide.
    """

    def __init__(self, area: LabelBox, places: Sequence[tuple[float, float]]) -> None:
        self._area = area
        self._taken = [
            (x - PLACE_REACH, y - PLACE_REACH, x + PLACE_REACH, y + PLACE_REACH) for x, y in places
        ]

    def put(self, place: tuple[float, float], name: str, color: str) -> str:
        """The name as text: left of its place if that can be, else right, else higher or lower."""
        width, (at, height) = LETTER * len(name), place
        options = [
            (side, height + shift)
            for shift in SHIFTS
            for side in ("end", "start")
            if self._fits(_make_box(at, height + shift, side, width))
        ] or [("start" if at < (self._area[0] + self._area[2]) / 2 else "end", height + 4)]
        free = [
            (side, y)
            for side, y in options
            if not any(_do_overlap(_make_box(at, y, side, width), other) for other in self._taken)
        ]
        side, y = (free or options)[0]
        self._taken.append(_make_box(at, y, side, width))
        x = at - GAP if side == "end" else at + GAP
        return make_label(x, y, name, fill=color, font_size=11, text_anchor=side)

    def _fits(self, box: LabelBox) -> bool:
        left, top, right, bottom = self._area
        return left <= box[0] and top <= box[1] and box[2] <= right and box[3] <= bottom


def _make_box(at: float, y: float, side: str, width: float) -> LabelBox:
    """What a name takes on one side of a place."""
    left = at - GAP - width if side == "end" else at + GAP
    return left, y - LINE, left + width, y


def _do_overlap(first: LabelBox, second: LabelBox) -> bool:
    apart = first[0] >= second[2] or second[0] >= first[2]
    return not (apart or first[1] >= second[3] or second[1] >= first[3])
