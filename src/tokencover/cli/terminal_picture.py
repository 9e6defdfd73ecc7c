"""A picture in a terminal: two pixels a letter, the upper and the lower half of a block.

Not a command itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from PIL import Image
from rich.console import Console
from rich.text import Text

HALF: Final = "▀"
SQUARE: Final = "■"
WIDEST: Final = 64
"""Letters of a picture at most."""
COLORFUL: Final = ("256", "truecolor")


def print_picture(
    picture: Image.Image, title: str = "", legend: Sequence[tuple[str, str]] = ()
) -> None:
    """Print a picture if standard output is a terminal with enough colours; else do nothing.

    Parameters
    ----------
    picture : Image
        No wider than it is, and than the terminal.
    title : str
        Above it.
    legend : sequence of tuple of str
        Below it: colours, and what they mean.
    """
    console = Console(highlight=False)
    without = console.no_color or console.color_system not in COLORFUL
    if without or not console.is_terminal:
        return
    if title:
        console.print(Text(title))
    console.print(draw_blocks(picture, min(WIDEST, console.width, picture.width)), end="")
    keys = [Text.assemble((SQUARE, color), f" {text}") for color, text in legend]
    if keys:
        console.print(Text("  ").join([*keys, Text("faded: dropped")]))
    console.print()


def draw_blocks(picture: Image.Image, width: int) -> Text:
    """The picture in so many columns of half blocks."""
    rows = max(1, round(width * picture.height / picture.width / 2))
    pixels = picture.convert("RGB").resize((width, 2 * rows), Image.Resampling.BOX)
    text = Text()
    for row in range(rows):
        for column in range(width):
            upper, lower = (
                "#{:02x}{:02x}{:02x}".format(*_get_color(pixels, column, 2 * row + below))
                for below in (0, 1)
            )
            text.append(HALF, f"{upper} on {lower}")
        text.append("\n")
    return text


def _get_color(pixels: Image.Image, column: int, row: int) -> tuple[int, int, int]:
    red, green, blue = pixels.getpixel((column, row))  # type: ignore[misc]
    return red, green, blue
