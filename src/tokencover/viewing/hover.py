"""The kept tokens on the picture, for a web page: what each is shows under the pointer."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape

from PIL import Image

from tokencover.prompting import Medium
from tokencover.runtime import Trace
from tokencover.viewing.canvas import FADING
from tokencover.viewing.colors import COLORS, css
from tokencover.viewing.describing import describe, describe_mark, describe_view
from tokencover.viewing.marks import Mark, Marks, marks_of
from tokencover.viewing.views import Shown, views_of

_WIDTH, _LARGEST = 480, 1024
"""Pixels of a view on the page, and of the longer side of the picture that is sent along."""
_UNITS = 1000
"""A view's coordinates run from 0 to this along its longer side."""


def hover_html(
    picture: Medium, trace: Trace, words: Sequence[str] | None = None, *, medium: int = 0
) -> str:
    """A piece of a web page with one image or video, complete in itself and without scripts.

    Parameters
    ----------
    picture : Image or list of Image
        What the model was shown, or the frames of a video.
    trace : Trace
        What happened to the sample.
    words : sequence of str, optional
        The word of each prompt centre, from `words_of_centers`.
    medium : int
        Which image or video of the prompt.

    Returns
    -------
    str
        A ``<figure>``: one SVG for each view or frame, in which every kept token has a title with
        row, column, order of choice and word.
    """
    marks = marks_of(trace, words)
    views = "".join(_view(shown, marks) for shown in views_of(picture, trace, medium))
    return (
        '<figure style="margin:0;font:14px sans-serif">'
        f'<div style="display:flex;flex-wrap:wrap;gap:12px">{views}</div>'
        f"<figcaption>{escape(describe(trace))}</figcaption></figure>"
    )


def _view(shown: Shown, marks: Marks) -> str:
    scale = _UNITS / max(shown.picture.size)
    width, height = (round(length * scale, 2) for length in shown.picture.size)
    here = marks.of_view(shown.medium, shown.frame)
    boxes = [_box(mark, shown.grid, width, height) for mark in here]
    told = describe_view(marks, shown.medium, shown.frame, shown.grid)
    title = escape(f"{shown.title}: {told}")
    tokens = "".join(_token(mark, box) for mark, box in zip(here, boxes, strict=True))
    return (
        f'<div style="width:{_WIDTH}px;max-width:100%"><div>{title}</div>'
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="100%" role="img" aria-label="{title}">'
        f'<image href="{_address(shown.picture)}" width="{width:g}" height="{height:g}" '
        f'preserveAspectRatio="none" style="image-rendering:{_rendering(shown.picture)}"/>'
        f"{_veil(boxes, width, height)}{tokens}</svg></div>"
    )


Box = tuple[float, float, float, float]


def _box(mark: Mark, grid: tuple[int, int], width: float, height: float) -> Box:
    """Left, top, width and height of a token."""
    rows, columns = grid
    wide, tall = width / columns, height / rows
    return mark.column * wide, mark.row * tall, wide, tall


def _veil(boxes: Sequence[Box], width: float, height: float) -> str:
    """White over all that was dropped: one shape with a hole for each kept token."""
    holes = "".join(
        f"M{left:.2f} {top:.2f}h{wide:.2f}v{tall:.2f}h-{wide:.2f}z"
        for left, top, wide, tall in boxes
    )
    return (
        f'<path fill="#fff" fill-opacity="{FADING}" fill-rule="evenodd" '
        f'd="M0 0H{width:g}V{height:g}H0z{holes}"/>'
    )


def _token(mark: Mark, box: Box) -> str:
    left, top, wide, tall = box
    line = min(wide, tall) / 12
    return (
        f'<rect x="{left + line / 2:.2f}" y="{top + line / 2:.2f}" width="{wide - line:.2f}" '
        f'height="{tall - line:.2f}" fill="none" stroke="{css(COLORS[mark.role])}" '
        f'stroke-width="{line:.2f}" pointer-events="all">'
        f"<title>{escape(describe_mark(mark))}</title></rect>"
    )


def _address(picture: Image.Image) -> str:
    """The picture itself as an address, no larger than is seen."""
    small = picture.convert("RGB")
    small.thumbnail((_LARGEST, _LARGEST))
    file = io.BytesIO()
    small.save(file, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def _rendering(picture: Image.Image) -> str:
    return "pixelated" if max(picture.size) < _WIDTH else "auto"
