"""What the colours mean."""

from __future__ import annotations

from tokencover.visualization.kept_tokens import Role

Color = tuple[int, int, int]

PROMPT_COLOR: Color = (255, 140, 0)
"""Prompt centres are framed orange."""
VISUAL_COLOR: Color = (0, 120, 255)
"""Visual centres are framed blue."""
KEPT_COLOR: Color = (214, 0, 140)
"""Tokens of a method that does not tell what it chose them for are framed pink."""
DROPPED_COLOR: Color = (228, 228, 228)
"""The legend's patch for what fades."""
FADING = 0.75
"""How much white is mixed into what was dropped."""
ROLE_COLORS: dict[Role, Color] = {
    "prompt": PROMPT_COLOR,
    "visual": VISUAL_COLOR,
    "kept": KEPT_COLOR,
}


def to_css(color: Color) -> str:
    """The colour as a web page writes it."""
    return "#{:02x}{:02x}{:02x}".format(*color)
