"""The prompt: which tokens are the user's own words."""

from tokencover.runtime.prompt.token_text import FIRST_CONTROL, Line, Reader
from tokencover.runtime.prompt.user_words import UserWords, Words, choose_words

__all__ = ["FIRST_CONTROL", "Line", "Reader", "UserWords", "Words", "choose_words"]
