"""One view as a picture: dropped tokens fade, kept ones stay crisp in a coloured frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from PIL import Image, ImageDraw

from tokencover.viewing.captions import draw_tag
from tokencover.viewing.colors import COLORS
from tokencover.viewing.marks import Mark

FADING = 0.75
"""How much white is mixed into what was dropped."""
LEAST_FOR_TAGS = 16
"""Pixels that a token needs along its shorter side for a number to be read in it."""

Box = tuple[int, int, int, int]


def drawn(
    picture: Image.Image,
    grid: tuple[int, int],
    marks: Iterable[Mark],
    numbers: Mapping[str, int],
) -> Image.Image:
    """Fade what was dropped, frame what was kept, number the words.

    Parameters
    ----------
    picture : Image
        What the model was shown, in the size to draw it.
    grid : tuple of int
        Rows and columns of tokens.
    marks : iterable of Mark
        The kept tokens of this view.
    numbers : mapping
        The number that stands for each word.
    """
    crisp = picture.convert("RGB")
    faded = Image.blend(crisp, Image.new("RGB", crisp.size, "white"), FADING)
    draw = ImageDraw.Draw(faded)
    for mark in marks:
        box = _box(mark, grid, crisp.size)
        short = min(box[2] - box[0], box[3] - box[1])
        faded.paste(crisp.crop(box), box[:2])
        left, top, right, bottom = box
        draw.rectangle(
            (left, top, max(left, right - 1), max(top, bottom - 1)),
            outline=COLORS[mark.role],
            width=min(3, max(1, short // 12)),
        )
        if mark.word is not None and mark.word in numbers and short >= LEAST_FOR_TAGS:
            draw_tag(draw, (left, top), str(numbers[mark.word]), COLORS[mark.role])
    return faded


def fitted(picture: Image.Image, grid: tuple[int, int], side: int) -> Image.Image:
    """The picture with a longer side of about `side` pixels, and all tokens of one size."""
    rows, columns = grid
    scale = side / max(picture.size)
    width = columns * max(1, round(picture.width * scale / columns))
    height = rows * max(1, round(picture.height * scale / rows))
    whole = width % picture.width == 0 and height % picture.height == 0
    how = Image.Resampling.NEAREST if whole else Image.Resampling.LANCZOS
    return picture.convert("RGB").resize((width, height), how)


def _box(mark: Mark, grid: tuple[int, int], size: tuple[int, int]) -> Box:
    """Left, top, right and bottom of a token's part of the picture."""
    (rows, columns), (width, height) = grid, size
    return (
        mark.column * width // columns,
        mark.row * height // rows,
        (mark.column + 1) * width // columns,
        (mark.row + 1) * height // rows,
    )
