"""The token ids that every tiny model of the zoo shares, and the prompts written with them.

The ids stand for what a real tokenizer would give: a few special and template tokens, then
ordinary words. A prompt has a system part whose words are ordinary words too, so that a rule that
takes every ordinary word for the user's word is caught.
"""

from collections.abc import Sequence

PAD, BOS, EOS = 0, 1, 2
TURN_START, TURN_END, SYSTEM, USER, ASSISTANT, LINE = 3, 4, 5, 6, 7, 8
VISION_START, VISION_END, IMAGE, VIDEO = 9, 10, 11, 12
AROUND_IMAGE, GLOBAL_VIEW, TIMESTAMP = 13, 14, 15
TILE_TAGS = tuple(range(16, 24))
FIRST_WORD, VOCABULARY_SIZE = 24, 80

SPECIAL_IDS = frozenset(range(FIRST_WORD))

Ids = list[int]


def words(start: int, count: int) -> Ids:
    """Give ``count`` ordinary words that depend on ``start``."""
    span = VOCABULARY_SIZE - FIRST_WORD
    return [FIRST_WORD + (start * 17 + 5 * step + step * step) % span for step in range(count)]


def plain_chat(parts: Sequence[Ids]) -> Ids:
    """Write one user turn in the style of Vicuna: ``<s> system USER: ... ASSISTANT:``."""
    return [BOS, *words(3, 3), USER, *_join(parts), ASSISTANT]


def tagged_chat(parts: Sequence[Ids]) -> Ids:
    """Write one user turn in the style of ChatML: ``<|im_start|>user ... <|im_end|>``."""
    system = [TURN_START, SYSTEM, LINE, *words(3, 4), TURN_END, LINE]
    user = [TURN_START, USER, LINE, *_join(parts), TURN_END, LINE]
    return [*system, *user, TURN_START, ASSISTANT, LINE]


def idefics_chat(parts: Sequence[Ids]) -> Ids:
    """Write one user turn in the style of Idefics3: ``<|im_start|>User: ... Assistant:``."""
    return [TURN_START, USER, *_join(parts), TURN_END, LINE, ASSISTANT]


def _join(parts: Sequence[Ids]) -> Ids:
    return [token for part in parts for token in part]
