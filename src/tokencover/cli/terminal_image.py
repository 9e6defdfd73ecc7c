"""An image in a terminal: two pixels per character, the halves of a block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from PIL import Image
from rich.console import Console
from rich.text import Text

from tokencover.colors import to_css

HALF: Final = "▀"
SQUARE: Final = "■"
MAX_WIDTH: Final = 64
"""Maximum characters per row of an image."""
COLORFUL: Final = ("256", "truecolor")


def print_image(
    image: Image.Image, title: str = "", legend: Sequence[tuple[str, str]] = ()
) -> None:
    """Print an image if standard output is a terminal with enough colors, else nothing.

    It is no wider than its pixels. `legend` has colors and their meaning.
    """
    console = Console(highlight=False)
    is_plain = console.no_color or console.color_system not in COLORFUL
    if is_plain or not console.is_terminal:
        return
    if title:
        console.print(Text(title))
    console.print(draw_blocks(image, min(MAX_WIDTH, console.width, image.width)), end="")
    keys = [Text.assemble((SQUARE, color), f" {text}") for color, text in legend]
    if keys:
        console.print(Text("  ").join([*keys, Text("faded: dropped")]))
    console.print()


def draw_blocks(image: Image.Image, width: int) -> Text:
    """Draw the image in `width` columns of half blocks."""
    rows = max(1, round(width * image.height / image.width / 2))
    pixels = image.convert("RGB").resize((width, 2 * rows), Image.Resampling.BOX)
    text = Text()
    for row in range(rows):
        for column in range(width):
            upper, lower = (
                to_css(pixels.getpixel((column, 2 * row + below)))  # type: ignore[arg-type]
                for below in (0, 1)
            )
            text.append(HALF, f"{upper} on {lower}")
        text.append("\n")
    return text
