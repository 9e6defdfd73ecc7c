"""Text in pictures: captions, the legend, the small numbers that stand for words."""

from __future__ import annotations

from functools import cache

from PIL import Image, ImageDraw, ImageFont

from tokencover.viewing.colors import Color

INK: Color = (45, 45, 45)
_SIZE, _TAG_SIZE, _SWATCH = 15, 10, 14


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def caption(text: str, width: int) -> Image.Image:
    """Text on white, no wider than `width`: lines break at spaces."""
    lines, font = [""], _font(_SIZE)
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
        draw.text((0, number * height), line, fill=INK, font=font)
    return image


def key(color: Color, text: str, number: str = "") -> Image.Image:
    """An entry of the legend: a patch of the colour, with a number or without, and the text."""
    font = _font(_SIZE)
    image = Image.new("RGB", (2 * _SIZE + round(font.getlength(text)), _SIZE + 7), "white")
    draw = ImageDraw.Draw(image)
    if number:
        draw_tag(draw, (0, 2), number, color, size=_SIZE - 2)
    else:
        draw.rectangle((0, 3, _SWATCH, 3 + _SWATCH), fill=color, outline=INK)
    draw.text((_SIZE + 8, 1), text, fill=INK, font=font)
    return image


def draw_tag(
    draw: ImageDraw.ImageDraw,
    corner: tuple[int, int],
    text: str,
    color: Color,
    size: int = _TAG_SIZE,
) -> None:
    """A small number on its colour, with its top left corner here."""
    (left, top), font = corner, _font(size)
    width = round(font.getlength(text))
    draw.rectangle((left, top, left + width + 3, top + size + 1), fill=color)
    draw.text((left + 2, top), text, fill="black", font=font)
