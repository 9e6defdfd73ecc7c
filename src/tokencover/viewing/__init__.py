"""Pictures of what was kept."""

from tokencover.viewing.arranging import flow
from tokencover.viewing.describing import describe
from tokencover.viewing.hover import hover_html
from tokencover.viewing.overlay import overlay
from tokencover.viewing.panels import GAP, WIDEST, panels
from tokencover.viewing.seen import as_seen, medium_as_seen
from tokencover.viewing.words import count_words, words_of_centers

__all__ = [
    "GAP",
    "WIDEST",
    "as_seen",
    "count_words",
    "describe",
    "flow",
    "hover_html",
    "medium_as_seen",
    "overlay",
    "panels",
    "words_of_centers",
]
