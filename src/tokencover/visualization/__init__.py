"""Images of what was kept."""

from tokencover.visualization.animation import animate_choice
from tokencover.visualization.answers import Answer, generate_answer
from tokencover.visualization.kept_tokens import count_words, describe, words_of_centers
from tokencover.visualization.shown_images import as_seen, medium_as_seen
from tokencover.visualization.still import (
    GAP,
    MARGIN,
    WIDEST,
    flow,
    list_legend,
    overlay,
    panels,
    tint_tokens,
)
from tokencover.visualization.web import hover_html, plain_html

__all__ = [
    "GAP",
    "MARGIN",
    "WIDEST",
    "Answer",
    "animate_choice",
    "as_seen",
    "count_words",
    "describe",
    "flow",
    "generate_answer",
    "hover_html",
    "list_legend",
    "medium_as_seen",
    "overlay",
    "panels",
    "plain_html",
    "tint_tokens",
    "words_of_centers",
]
