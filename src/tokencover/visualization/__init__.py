"""Pictures of what was kept."""

from tokencover.visualization.center_words import count_words, words_of_centers
from tokencover.visualization.kept_tokens import describe
from tokencover.visualization.order_of_choice import animate_choice
from tokencover.visualization.sheet_layout import flow
from tokencover.visualization.shown_pictures import as_seen, medium_as_seen
from tokencover.visualization.still_pictures import (
    GAP,
    MARGIN,
    WIDEST,
    list_legend,
    overlay,
    panels,
    tint_tokens,
)
from tokencover.visualization.web_figure import hover_html, plain_html

__all__ = [
    "GAP",
    "MARGIN",
    "WIDEST",
    "animate_choice",
    "as_seen",
    "count_words",
    "describe",
    "flow",
    "hover_html",
    "list_legend",
    "medium_as_seen",
    "overlay",
    "panels",
    "plain_html",
    "tint_tokens",
    "words_of_centers",
]
