"""The course of a training run, as data.

The decoder first learns to answer from described patches (sums of word vectors), the vision tower
to describe patches; both use the same fixed word vectors, so that afterwards they fit together and
learn jointly.

While the decoder learns, text is kept from attending to the picture in the first two blocks for
most of the batches. Otherwise all look-ups settle in the very first block, and pruning after it
could not hurt any more: the model would be useless for studying pruning.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from tokencover.pebble.questions import KINDS

EXTRA_KINDS = ("exist", "more", "side", "level")


@dataclass(frozen=True)
class Stage:
    """One stage of training.

    Attributes
    ----------
    name
        For the progress line.
    mode
        ``"words"``: decoder on described patches; ``"vision"``: vision tower and projector;
        ``"joint"``: everything.
    steps
        Optimiser steps.
    pictures
        Pictures a step and process.
    rate, vision_rate
        Peak learning rates of decoder and vision.
    blind
        Share of batches in which text cannot see the picture in the first two blocks.
    visual_tokens
        Patches the decoder is shown.
    description
        Weight of the description loss in joint training.
    choices
        Numbers of patches of which each step draws one instead of `visual_tokens`.
    cost
        Rough seconds a step, for the estimate of the time left.
    """

    name: str
    mode: Literal["words", "vision", "joint"]
    steps: int
    pictures: int
    rate: float = 0.0
    vision_rate: float = 0.0
    blind: float = 0.8
    visual_tokens: int = 576
    description: float = 1.0
    choices: tuple[int, ...] = ()
    cost: float = 1.0


@dataclass(frozen=True)
class Plan:
    """All stages and what they ask.

    Attributes
    ----------
    stages
        In their order.
    kinds
        Kinds of questions asked about every picture.
    extra
        Kinds asked once more.
    """

    stages: tuple[Stage, ...]
    kinds: tuple[str, ...] = KINDS
    extra: tuple[str, ...] = EXTRA_KINDS

    def as_json(self) -> dict[str, Any]:
        """The plan as plain values."""
        return {
            "stages": [asdict(stage) for stage in self.stages],
            "kinds": [*self.kinds, *self.extra],
        }


FULL_PLAN = Plan(
    (
        Stage("vision", "vision", 600, 4, vision_rate=8e-4, cost=0.6),
        Stage("words-64", "words", 300, 4, rate=3e-4, visual_tokens=64, cost=0.5),
        Stage("words-160", "words", 400, 4, rate=4e-4, visual_tokens=160, cost=0.7),
        Stage("words-576", "words", 300, 3, rate=4e-4, cost=1.1),
        Stage("joint", "joint", 900, 3, rate=1.5e-4, vision_rate=1e-4, cost=0.7),
        Stage("finish", "joint", 400, 3, rate=8e-5, vision_rate=5e-5, blind=0.5, cost=0.7),
        Stage(
            "vary",
            "joint",
            200,
            3,
            rate=1.2e-4,
            vision_rate=4e-5,
            blind=0.5,
            choices=(64, 96, 160, 288, 576, 576),
            cost=0.5,
        ),
    )
)
