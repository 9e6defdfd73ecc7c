"""How each kind of question is put into words: ``{...}`` stands for what is asked about."""

from __future__ import annotations

from typing import Final

SCENE_PHRASINGS: Final[dict[str, tuple[str, ...]]] = {
    "exist": ("is there a {name} ?", "do you see a {name} ?", "does the picture have a {name} ?"),
    "color": (
        "what color is the {name} ?",
        "which color has the {name} ?",
        "the {name} is of what color ?",
    ),
    "shape": (
        "what shape is the {name} ?",
        "which shape has the {name} ?",
        "the {name} is of what shape ?",
    ),
    "read": (
        "what number is on the {name} ?",
        "which number is printed on the {name} ?",
        "what is the number of the {name} ?",
    ),
    "where": (
        "where is the {name} ?",
        "where do you see the {name} ?",
        "in which part of the picture is the {name} ?",
    ),
    "animal_color": (
        "what color is the {name} ?",
        "which color has the {name} ?",
        "the {name} is of what color ?",
    ),
    "animal_name": (
        "which animal is at the {place} ?",
        "what animal do you see at the {place} ?",
        "which small animal lives at the {place} ?",
    ),
    "common_color": (
        "which color is most common ?",
        "what color is seen most often ?",
        "what color have most of the things ?",
    ),
    "common_shape": (
        "which shape is most common ?",
        "what shape is seen most often ?",
        "what shape have most of the things ?",
    ),
    "more": (
        "are there more {either} ?",
        "do you see more {either} ?",
        "does the picture have more {either} ?",
    ),
    "side": (
        "are the {name} mostly at the left or the right ?",
        "are most of the {name} at the left or the right ?",
        "left or right : where are most of the {name} ?",
    ),
    "level": (
        "are the {name} mostly at the top or the bottom ?",
        "are most of the {name} at the top or the bottom ?",
        "top or bottom : where are most of the {name} ?",
    ),
    "empty": (
        "which part of the picture is empty ?",
        "where is the picture free of objects ?",
        "which part of the picture holds nothing ?",
    ),
    "place": ("which place is this ?", "what kind of place is shown ?", "what place do you see ?"),
}

CLIP_PHRASINGS: Final = {
    **SCENE_PHRASINGS,
    "when": (
        "in which frame is the {name} ?",
        "in which frame do you see the {name} ?",
        "when is the {name} seen ?",
    ),
    "animal_then": (
        "which animal is in the {frame} frame ?",
        "what animal do you see in the {frame} frame ?",
        "which small animal comes in the {frame} frame ?",
    ),
    "order": (
        "which comes earlier : {either} ?",
        "which is seen earlier : {either} ?",
        "which animal is earlier : {either} ?",
    ),
    "half": (
        "are the {name} mostly early or late ?",
        "are most of the {name} early or late ?",
        "early or late : when are most of the {name} seen ?",
    ),
    "empty": (
        "which frame is empty ?",
        "when is the clip free of objects ?",
        "which frame holds nothing ?",
    ),
}
