"""Pictures beside and above each other on white, and text: captions, legend, numbers of words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from PIL import Image, ImageDraw, ImageFont

from tokencover.visualization.colors import Color

TEXT_COLOR: Color = (45, 45, 45)
_SIZE, _TAG_SIZE, _SWATCH = 15, 10, 14


def flow(images: Sequence[Image.Image], width: int, gap: int) -> Image.Image:
    """Side by side, in as many rows as it takes to stay within `width`."""
    rows: list[list[Image.Image]] = [[]]
    for image in images:
        used = sum(each.width + gap for each in rows[-1])
        if rows[-1] and used + image.width > width:
            rows.append([])
        rows[-1].append(image)
    return stack([_join_side_by_side(row, gap) for row in rows], gap)


def stack(images: Sequence[Image.Image], gap: int) -> Image.Image:
    """One below the other."""
    height = sum(image.height for image in images) + gap * (len(images) - 1)
    sheet = Image.new("RGB", (max(image.width for image in images), height), "white")
    top = 0
    for image in images:
        sheet.paste(image, (0, top))
        top += image.height + gap
    return sheet


def add_margin(image: Image.Image, margin: int) -> Image.Image:
    """The picture with a white margin on all sides."""
    sheet = Image.new("RGB", (image.width + 2 * margin, image.height + 2 * margin), "white")
    sheet.paste(image, (margin, margin))
    return sheet


def _join_side_by_side(images: Sequence[Image.Image], gap: int) -> Image.Image:
    width = sum(image.width for image in images) + gap * (len(images) - 1)
    sheet = Image.new("RGB", (width, max(image.height for image in images)), "white")
    left = 0
    for image in images:
        sheet.paste(image, (left, 0))
        left += image.width + gap
    return sheet


def draw_caption(text: str, width: int) -> Image.Image:
    """Text on white, no wider than `width`: lines break at spaces."""
    lines, font = [""], _load_font(_SIZE)
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and font.getlength(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    height = _SIZE + 5
    image = Image.new("RGB", (width, height * len(lines)), "white")
    draw = ImageDraw.Draw(image)
    for number, line in enumerate(lines):
        draw.text((0, number * height), line, fill=TEXT_COLOR, font=font)
    return image


def draw_key(color: Color, text: str, number: str = "") -> Image.Image:
    """An entry of the legend: a patch of the colour, with a number or without, and the text."""
    font = _load_font(_SIZE)
    image = Image.new("RGB", (2 * _SIZE + round(font.getlength(text)), _SIZE + 7), "white")
    draw = ImageDraw.Draw(image)
    if number:
        draw_tag(draw, (0, 2), number, color, size=_SIZE - 2)
    else:
        draw.rectangle((0, 3, _SWATCH, 3 + _SWATCH), fill=color, outline=TEXT_COLOR)
    draw.text((_SIZE + 8, 1), text, fill=TEXT_COLOR, font=font)
    return image


def draw_tag(
    draw: ImageDraw.ImageDraw,
    corner: tuple[int, int],
    text: str,
    color: Color,
    size: int = _TAG_SIZE,
) -> None:
    """A small number on its colour, with its top left corner here."""
    (left, top), font = corner, _load_font(size)
    width = round(font.getlength(text))
    draw.rectangle((left, top, left + width + 3, top + size + 1), fill=color)
    draw.text((left + 2, top), text, fill="black", font=font)


@cache
def _load_font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
