"""The course of boulder's training, as data: six patches first, then more, then whole images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

RUN: Final = 8
"""Of the training scenes: no model of pebble's was shown these."""
EXIST: Final = ("exist",)
EASY: Final = (*("exist",) * 6, *("pair",) * 5, *("single",) * 5)
LOOK_UPS: Final = ("color", "shape", "read")
ANIMAL: Final = "animal_color"
COUNTED: Final = ("common_color", "common_shape", *("more",) * 4, *("side", "level") * 3)
ALL: Final = (
    *EXIST * 6,
    *LOOK_UPS * 4,
    *("where",) * 4,
    *(ANIMAL, "animal_name") * 3,
    *COUNTED,
    "place",
)
EMPTY: Final = ("empty",)
MANY: Final = (192, 288, 576, 576)
BALANCED: Final = (*EXIST * 4, *("pair",) * 2, "single", *LOOK_UPS * 3, ANIMAL, ANIMAL)


@dataclass(frozen=True)
class Stage:
    """One stage.

    Attributes
    ----------
    name
        For the log.
    steps
        At most so many optimiser steps.
    enough
        Share of correct answers about existence, over the last steps, that ends the stage early.
    images, parts
        Images a step, and at most so many parts of each.
    things, patches
        Objects and animals in a part, and from how many patches in all a step draws.
    kinds
        Kinds of questions about each part, repeated as often as they are asked.
    phrases
        Phrases about each part.
    phrasings
        In how many ways a kind is put; with one, questions share more of their words.
    rate
        Peak learning rate of the LoRA.
    filled
        Patches a step shows in all, if it is to show more images the fewer patches of each.
    whole_kinds
        Kinds asked in addition where the whole image is shown.
    ends
        Fraction of the questions whose answer's end is taught too.
    falls_to
        Fraction of the rate that is left after the last step.
    places
        Whether the projector is reported places in other words before it, see `boulder.places`.
    """

    name: str
    steps: int
    enough: float
    pictures: int
    parts: int
    things: int
    patches: tuple[int, ...]
    kinds: tuple[str, ...]
    phrases: int
    phrasings: int = 1
    rate: float = 1e-3
    filled: int = 0
    whole_kinds: tuple[str, ...] = ()
    ends: float = 0.0
    falls_to: float = 1.0
    places: bool = False

    def count_pictures(self, patches: int) -> int:
        """Images of a step that shows so many patches of each."""
        return max(self.pictures, self.filled // patches)


STAGES: Final = (
    Stage("few", 140, 0.92, 2, 4, 6, (6,), EXIST * 10, 6),
    Stage("easy", 80, 0.88, 2, 4, 6, (6,), EASY, 6),
    Stage("some", 60, 0.88, 2, 3, 12, (12, 16, 24), (*EASY, *LOOK_UPS), 4),
    Stage("more", 60, 0.88, 4, 1, 30, (30, 40, 60), (*EASY, *LOOK_UPS), 4, 3),
    Stage("half", 30, 0.88, 2, 1, 32, (144, 288), (*EASY, *LOOK_UPS, ANIMAL), 4, 3, 6e-4),
    Stage("whole", 20, 1.01, 1, 1, 32, (576,), BALANCED, 4, 3, 6e-4),
    Stage("look", 41, 1.01, 4, 1, 30, (40, 60, 96), BALANCED, 4, 3),
    Stage("parts", 100, 1.01, 1, 1, 0, (96, 144, 288), ALL, 4, 3, 8e-4, 576, (), 0.25),
    Stage("all", 60, 1.01, 1, 1, 0, MANY, ALL, 4, 3, 6e-4, 576, EMPTY, 0.25, 0.85),
    Stage("placed", 340, 1.01, 1, 1, 0, MANY, ALL, 4, 3, 5.1e-4, 576, EMPTY, 0.25, 0.0, True),
)

CONTROL: Final = tuple(
    replace(stage, name="control", kinds=EXIST * len(EASY)) if stage.name == "easy" else stage
    for stage in STAGES
)
"""The same with as many questions in the stage "easy", all of them the benchmark's own."""
