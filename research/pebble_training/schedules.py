"""The course of a training run, as data.

The image model starts from random weights. The vision encoder learns to see through heads of its
own, then the decoder learns from phrases about six patches at a time, then about more, then from
questions as well. Where the decoder is shown part of an image, the part is drawn at random, and
only what it shows is asked about. Every second part keeps the numbers of its patches, the others
are numbered again: methods leave tokens both ways, and a model that knew one of them only would
favour those. What it does not know in the end is taught once more, from six patches on (see
`revision`).

While a decoder learns, text is kept from attending to the image in the first two blocks for
most of the batches. Otherwise all look-ups settle in the very first block, and pruning after it
could not hurt any more: the model would be useless for studying pruning.

The model for videos starts from a look-up model, which knows objects and how to look them up; what
is new is time. The decoder of such a model first learns to answer from described patches (sums of
word vectors), the vision encoder to describe patches; both use the same fixed word vectors, so that
afterwards they fit together and learn jointly. Its last stage shows parts of the ground only.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from tokencover_models.pebble.data import CLIP_QUESTIONS, SCENE_QUESTIONS


@dataclass(frozen=True)
class Stage:
    """One stage of training.

    Attributes
    ----------
    name
        For the progress line.
    mode
        ``"words"``: decoder on described patches; ``"vision"``: vision encoder and projector;
        ``"joint"``: everything. Of the image model those parts are trained that have a rate.
    steps
        Optimiser steps.
    images
        Images a step and process.
    rate, vision_rate
        Peak learning rates of decoder and vision.
    blind
        Share of batches in which text cannot see the image in the first two blocks.
    visual_tokens
        Patches the decoder is shown.
    description
        Weight of the description loss in joint training.
    choices
        Numbers of patches of which each step draws one instead of `visual_tokens`.
    things
        Of the image model: objects and animals in each part of an image; 0 draws patches at
        random.
    phrases
        Of the image model: phrases about each part.
    asks
        Of the image model: whether questions are asked too.
    renumber
        Of the image model: share of batches in which the patches that are shown are numbered
        again, without gaps.
    revised
        Of the image model: how many questions of kinds that the model does not know are asked
        about each part, and no others; 0 asks all kinds.
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
    things: int = 0
    phrases: int = 24
    asks: bool = True
    renumber: float = 0.0
    revised: int = 0
    cost: float = 1.0


@dataclass(frozen=True)
class Schedule:
    """All stages of a training run, and what they ask.

    Attributes
    ----------
    stages
        In their order.
    kinds
        Kinds of questions asked about every image.
    extra
        Kinds asked once more.
    again
        Stages that follow only if, at the end of the others, there are kinds of questions that the
        model does not know.
    """

    stages: tuple[Stage, ...]
    kinds: tuple[str, ...]
    extra: tuple[str, ...] = ()
    again: tuple[Stage, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The schedule as plain values."""
        return {
            "stages": [asdict(stage) for stage in self.stages],
            "again": [asdict(stage) for stage in self.again],
            "kinds": [*self.kinds, *self.extra],
        }


_FINISH: Final = Stage(
    "finish",
    "joint",
    300,
    3,
    rate=2e-4,
    vision_rate=5e-5,
    blind=0.5,
    description=0.3,
    choices=(192, 288, 576, 576),
    renumber=0.5,
    cost=1.5,
)

PICTURE_SCHEDULE: Final = Schedule(
    (
        Stage("vision", "vision", 900, 4, vision_rate=8e-4, cost=0.6),
        Stage(
            "few",
            "joint",
            300,
            4,
            rate=1.5e-3,
            visual_tokens=6,
            things=6,
            asks=False,
            renumber=0.5,
            cost=1.1,
        ),
        Stage(
            "some",
            "joint",
            120,
            4,
            rate=1e-3,
            visual_tokens=36,
            things=12,
            asks=False,
            renumber=0.5,
            cost=0.8,
        ),
        Stage("part", "joint", 500, 4, rate=1e-3, choices=(96, 144, 192), renumber=0.5, cost=1.2),
        Stage(
            "whole",
            "joint",
            800,
            3,
            rate=6e-4,
            vision_rate=1.5e-4,
            description=0.3,
            choices=(192, 288, 576, 576),
            renumber=0.5,
            cost=1.5,
        ),
        _FINISH,
    ),
    kinds=SCENE_QUESTIONS.kinds,
    extra=("exist", "more", "side", "level"),
    again=(
        Stage(
            "again few",
            "joint",
            160,
            2,
            rate=1e-3,
            visual_tokens=6,
            things=6,
            renumber=0.5,
            revised=10,
            cost=0.7,
        ),
        Stage(
            "again some",
            "joint",
            80,
            3,
            rate=8e-4,
            visual_tokens=36,
            things=12,
            renumber=0.5,
            revised=10,
            cost=0.8,
        ),
        replace(_FINISH, name="again whole", rate=4e-4),
    ),
)

LOOKUP_SCHEDULE: Final = Schedule(
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
    ),
    kinds=SCENE_QUESTIONS.kinds,
    extra=("exist", "more", "side", "level"),
)

CLIP_SCHEDULE: Final = Schedule(
    (
        Stage("vision", "vision", 120, 3, vision_rate=4e-4, cost=0.8),
        Stage("words-160", "words", 600, 4, rate=4e-4, visual_tokens=160, cost=0.4),
        Stage("words-576", "words", 200, 3, rate=3e-4, visual_tokens=576, cost=0.8),
        Stage("joint", "joint", 800, 2, rate=1.5e-4, vision_rate=1e-4, cost=1.2),
        Stage("finish", "joint", 200, 2, rate=8e-5, vision_rate=4e-5, blind=0.5, cost=1.2),
        Stage(
            "vary",
            "joint",
            150,
            2,
            rate=8e-5,
            vision_rate=3e-5,
            blind=0.5,
            choices=(136, 192, 320, 576, 1160, 1160),
            cost=0.9,
        ),
    ),
    kinds=CLIP_QUESTIONS.kinds,
    extra=("exist", "more", "half", "order"),
)
