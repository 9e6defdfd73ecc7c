"""The prompt: which tokens are the user's own words."""

from tokencover.pruning.prompt.chat_shape import FIRST_CONTROL, Reader, TokenLine
from tokencover.pruning.prompt.user_words import (
    GivenMask,
    UserWords,
    Words,
    choose_words,
    mark_text,
)

__all__ = [
    "FIRST_CONTROL",
    "GivenMask",
    "Reader",
    "TokenLine",
    "UserWords",
    "Words",
    "choose_words",
    "mark_text",
]
