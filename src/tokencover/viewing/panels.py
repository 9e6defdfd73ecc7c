"""Everything that a prompt showed, in one picture with captions and a legend."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image

from tokencover.prompting import Medium
from tokencover.runtime import Trace
from tokencover.viewing.arranging import flow, framed, stack
from tokencover.viewing.canvas import LEAST_FOR_TAGS, drawn, fitted
from tokencover.viewing.captions import caption, key
from tokencover.viewing.colors import COLORS, DROPPED_COLOR
from tokencover.viewing.describing import ROLES, describe, describe_view
from tokencover.viewing.marks import Marks, marks_of
from tokencover.viewing.views import Shown, check_count, views_of
from tokencover.viewing.words import count_words, numbered

GAP, MARGIN = 14, 16
"""Pixels between panels, and around the whole."""
NARROWEST, WIDEST, LARGEST = 520, 1600, 1280
"""Pixels of the captions at least, of a row at most, and of a panel that is chosen by itself."""
_ROOM = ((1, 768), (2, 512), (4, 384))
"""Up to so many panels have so many pixels along their longer side."""


def panels(
    pictures: Sequence[Medium],
    trace: Trace,
    words: Sequence[str] | None = None,
    *,
    title: str = "",
    side: int | None = None,
) -> Image.Image:
    """Draw what was kept of every picture of a prompt.

    Each image is one panel, or two: its base view and its tiles. A video is a strip of frames.

    Parameters
    ----------
    pictures : sequence of Image or of list of Image
        The images and videos of the prompt in its order, a video as the list of its frames.
    trace : Trace
        What happened to the sample.
    words : sequence of str, optional
        The word of each prompt centre, from `words_of_centers`. Prompt centres bear the number of
        their word, and the legend tells the words.
    title : str
        What to write above everything, the question say.
    side : int, optional
        Pixels of a panel's longer side, about; by default as many as there is room for.
    """
    check_count(pictures, trace)
    marks, numbers = marks_of(trace, words), numbered(words)
    rows = [views_of(picture, trace, medium) for medium, picture in enumerate(pictures)]
    count = sum(len(row) for row in rows)
    made = [
        [_panel(shown, marks, numbers, side or _side(shown, count)) for shown in row]
        for row in rows
    ]
    body = flow([flow(row, WIDEST, GAP) for row in made], WIDEST, GAP)
    width = max(body.width, NARROWEST)
    head = [caption(text, width) for text in (title, describe(trace)) if text]
    keys = [flow(row, width, GAP) for row in (_legend(marks), _word_keys(words or ())) if row]
    return framed(stack([stack(head, 2), body, *keys], GAP), MARGIN)


def _side(shown: Shown, count: int) -> int:
    """More pixels for fewer panels, but enough for a number in every token."""
    room = next((pixels for most, pixels in _ROOM if count <= most), 300)
    (rows, columns), (width, height) = shown.grid, shown.picture.size
    legible = LEAST_FOR_TAGS * max(width, height) / min(width / columns, height / rows)
    return max(room, min(LARGEST, round(legible)))


def _panel(shown: Shown, marks: Marks, numbers: dict[str, int], side: int) -> Image.Image:
    large = fitted(shown.picture, shown.grid, side)
    here = marks.of_view(shown.medium, shown.frame)
    told = describe_view(marks, shown.medium, shown.frame, shown.grid)
    image = drawn(large, shown.grid, here, numbers)
    return stack([caption(f"{shown.title}: {told}", image.width), image], 2)


def _legend(marks: Marks) -> list[Image.Image]:
    """What the colours mean that there are."""
    keys = [key(COLORS[role], text) for role, text in ROLES.items() if marks.count(role)]
    return [*keys, key(DROPPED_COLOR, "faded: dropped")]


def _word_keys(words: Sequence[str]) -> list[Image.Image]:
    """The number of each word, the word, and how many centres it chose."""
    return [
        key(COLORS["prompt"], f"{word} ({count})", number=str(number))
        for number, (word, count) in enumerate(count_words(words), start=1)
    ]
