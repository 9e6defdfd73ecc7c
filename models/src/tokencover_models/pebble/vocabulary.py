"""Every word Pebble knows, in groups.

A picture is described patch by patch with the *describing* groups; questions and answers use the
same words, which is what ties the vision encoder to the decoder while they train.
"""

from __future__ import annotations

from typing import Final

COLOR_WORDS: Final = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "white")
SHAPES: Final = ("circle", "square", "triangle", "star", "heart", "diamond", "cross", "flower")
DIGITS: Final = tuple("0123456789")
ANIMALS: Final = (
    "cat",
    "fish",
    "bird",
    "snail",
    "crab",
    "bee",
    "frog",
    "mouse",
    "duck",
    "turtle",
)
REGIONS: Final = (
    "top-left",
    "top",
    "top-right",
    "left",
    "center",
    "right",
    "bottom-left",
    "bottom",
    "bottom-right",
)
PLACES: Final = ("meadow", "beach", "night", "snow", "desert", "pond")
STUFF: Final = (
    "grass",
    "soil",
    "leaf",
    "bloom",
    "sand",
    "water",
    "shell",
    "sky",
    "cloud",
    "sparkle",
    "frost",
    "ice",
    "flake",
    "rock",
    "cactus",
    "lily",
    "bubble",
    "pebble",
    "twig",
    "rim",
)
TINTS: Final = ("pale", "plain", "deep")
ROW_WORDS: Final = tuple(f"<row{i}>" for i in range(6))
COLUMN_WORDS: Final = tuple(f"<column{i}>" for i in range(6))

PLURALS: Final = {
    "circle": "circles",
    "square": "squares",
    "triangle": "triangles",
    "star": "stars",
    "heart": "hearts",
    "diamond": "diamonds",
    "cross": "crosses",
    "flower": "flowers",
}

PAD: Final = "<pad>"
UNKNOWN: Final = "<unk>"
BEGIN: Final = "<s>"
END: Final = "</s>"
IMAGE: Final = "<image>"
USER: Final = "USER:"
ASSISTANT: Final = "ASSISTANT:"
SPECIAL: Final = (PAD, BEGIN, END, UNKNOWN, IMAGE)

_GLUE: Final = (
    *("yes", "no", "?", "a", "an", "the", "is", "are", "do", "does", "can", "you", "see", "there"),
    *("any", "what", "which", "where", "color", "shape", "number", "thing", "things", "marked"),
    *("on", "of", "in", "it", "has", "with", "have", "find", "most", "common", "seen", "often"),
    *("more", "than", "mostly", "or", "side", "half", "part", "picture", "empty"),
    *("place", "this", "kind", "animal", "lives", "small", "upper", "lower", "shown", "printed"),
    *("at", "holds", "nothing", "one", "that", "many", "animals", "objects", "free", ":"),
)


def _list_words() -> tuple[str, ...]:
    """Words in the order of their token ids, without repeats.

    Returns
    -------
    tuple of str
        Special tokens first, then the turn markers, then every group.
    """
    groups = (
        *(SPECIAL, (USER, ASSISTANT), COLOR_WORDS, SHAPES, DIGITS, ANIMALS, REGIONS, PLACES, STUFF),
        *(TINTS, ROW_WORDS, COLUMN_WORDS, tuple(PLURALS.values()), _GLUE),
    )
    return tuple(dict.fromkeys(word for group in groups for word in group))


PICTURE_WORDS: Final = _list_words()
PICTURE_WORD_IDS: Final = {word: index for index, word in enumerate(PICTURE_WORDS)}

VIDEO: Final = "<video>"
FRAMES: Final = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
_CLIP_GLUE: Final = (
    *("clip", "frame", "when", "comes", "early", "late", "earlier", "before", "film", "during"),
)
CLIP_WORDS: Final = (*PICTURE_WORDS, VIDEO, *FRAMES, *_CLIP_GLUE)
"""What the model for clips knows: all of ``PICTURE_WORDS`` with the same ids, and some more."""
CLIP_WORD_IDS: Final = {word: index for index, word in enumerate(CLIP_WORDS)}
