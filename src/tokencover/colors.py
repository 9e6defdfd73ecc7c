"""The colors of tokens by their role: in images, notebooks, web pages and terminals."""

from __future__ import annotations

from typing import Literal

Color = tuple[int, int, int]
"""Red, green and blue, 0 to 255."""
Role = Literal["prompt", "visual", "kept"]
"""A prompt center, a visual center, or a token of a method without that distinction."""

PROMPT_COLOR: Color = (255, 140, 0)
VISUAL_COLOR: Color = (0, 120, 255)
KEPT_COLOR: Color = (214, 0, 140)
DROPPED_COLOR: Color = (228, 228, 228)
"""Orange, blue, pink; gray in legends for the faded parts."""
ROLE_COLORS: dict[Role, Color] = {
    "prompt": PROMPT_COLOR,
    "visual": VISUAL_COLOR,
    "kept": KEPT_COLOR,
}
FADING = 0.75
"""The fraction of white that is mixed into dropped tokens."""


def to_css(color: Color) -> str:
    """Return the color in the notation of web pages, ``#rrggbb``."""
    return "#{:02x}{:02x}{:02x}".format(*color)
