"""The kept tokens on the image, for a web page: the pointer shows what each is."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape

from PIL import Image

from tokencover.colors import FADING, ROLE_COLORS, to_css
from tokencover.prompting import Medium
from tokencover.pruning import Trace
from tokencover.visualization.kept_tokens import (
    KeptToken,
    KeptTokens,
    describe,
    describe_token,
    describe_view,
    get_kept_tokens,
)
from tokencover.visualization.shown_images import ShownView, list_views

_WIDTH, _LARGEST = 480, 1024
"""Pixels of a view on the page, and of the longer side of the embedded image."""
_UNITS = 1000
"""The coordinates of a view along its longer side: 0 to this."""
SvgBox = tuple[float, float, float, float]
"""Left, top, width and height."""


def hover_html(
    image: Medium, trace: Trace, words: Sequence[str] | None = None, *, medium: int = 0
) -> str:
    """Draw one image or video as a part of a web page, without scripts or other files.

    Parameters
    ----------
    image : Image or list of Image
        What the model was shown, or the frames of a video.
    trace : Trace
        What happened to the sample.
    words : sequence of str, optional
        The word of each prompt center, from `words_of_centers`.
    medium : int
        Which image or video of the prompt.

    Returns
    -------
    str
        A ``<figure>``: one SVG for each view or frame, in which every kept token has a title with
        row, column, order of selection and word.
    """
    kept = get_kept_tokens(trace, words)
    views = "".join(_render_view(shown, kept) for shown in list_views(image, trace, medium))
    return _render_figure(views, escape(describe(trace)))


def plain_html(images: Sequence[Image.Image]) -> str:
    """Draw the same figure without marked tokens, for the unpruned model."""
    views = "".join(
        f'<div style="width:{_WIDTH}px;max-width:100%"><img alt="" src="{_encode_image(each)}" '
        f'style="width:100%;image-rendering:{_choose_rendering(each)}"></div>'
        for each in images
    )
    return _render_figure(views, "all visual tokens")


def _render_figure(views: str, caption: str) -> str:
    return (
        '<figure style="margin:0;font:14px sans-serif">'
        f'<div style="display:flex;flex-wrap:wrap;gap:12px">{views}</div>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _render_view(shown: ShownView, kept: KeptTokens) -> str:
    scale = _UNITS / max(shown.image.size)
    width, height = (round(length * scale, 2) for length in shown.image.size)
    here = kept.of_view(shown.medium, shown.frame)
    boxes = [_locate_token(token, shown.grid, width, height) for token in here]
    text = describe_view(kept, shown.medium, shown.frame, shown.grid)
    title = escape(f"{shown.title}: {text}")
    tokens = "".join(_render_token(token, box) for token, box in zip(here, boxes, strict=True))
    return (
        f'<div style="width:{_WIDTH}px;max-width:100%"><div>{title}</div>'
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="100%" role="img" aria-label="{title}">'
        f'<image href="{_encode_image(shown.image)}" width="{width:g}" height="{height:g}" '
        f'preserveAspectRatio="none" style="image-rendering:{_choose_rendering(shown.image)}"/>'
        f"{_render_veil(boxes, width, height)}{tokens}</svg></div>"
    )


def _locate_token(token: KeptToken, grid: tuple[int, int], width: float, height: float) -> SvgBox:
    """Return left, top, width and height of a token."""
    rows, columns = grid
    wide, tall = width / columns, height / rows
    return token.column * wide, token.row * tall, wide, tall


def _render_veil(boxes: Sequence[SvgBox], width: float, height: float) -> str:
    """Cover what was dropped with white: one shape with a hole for each kept token."""
    holes = "".join(
        f"M{left:.2f} {top:.2f}h{wide:.2f}v{tall:.2f}h-{wide:.2f}z"
        for left, top, wide, tall in boxes
    )
    return (
        f'<path fill="#fff" fill-opacity="{FADING}" fill-rule="evenodd" '
        f'd="M0 0H{width:g}V{height:g}H0z{holes}"/>'
    )


def _render_token(token: KeptToken, box: SvgBox) -> str:
    left, top, wide, tall = box
    line = min(wide, tall) / 12
    return (
        f'<rect x="{left + line / 2:.2f}" y="{top + line / 2:.2f}" width="{wide - line:.2f}" '
        f'height="{tall - line:.2f}" fill="none" stroke="{to_css(ROLE_COLORS[token.role])}" '
        f'stroke-width="{line:.2f}" pointer-events="all">'
        f"<title>{escape(describe_token(token))}</title></rect>"
    )


def _encode_image(image: Image.Image) -> str:
    """Encode the image as a data address, no larger than needed."""
    small = image.convert("RGB")
    small.thumbnail((_LARGEST, _LARGEST))
    file = io.BytesIO()
    small.save(file, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def _choose_rendering(image: Image.Image) -> str:
    return "pixelated" if max(image.size) < _WIDTH else "auto"
