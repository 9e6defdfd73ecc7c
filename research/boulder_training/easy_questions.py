"""Questions about existence that are easier than the benchmark's, to begin with.

The benchmark asks about colours and shapes that are both there ("is there a red star ?" where there
is something red, and a star), so that only their meeting in one object tells. Here they may be
missing altogether, or only one of them is asked about.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from numpy.random import Generator

from tokencover_models.pebble.data import SCENE_QUESTIONS, QuestionSet, SceneLike
from tokencover_models.pebble.vocabulary import COLOR_WORDS, SHAPES

Draft = tuple[str, dict[str, str]] | None
PAIRS: Final = [f"{color} {shape}" for color in COLOR_WORDS for shape in SHAPES]
SINGLES: Final = [*(f"{color} thing" for color in COLOR_WORDS), *SHAPES]


def ask_pair(scene: SceneLike, rng: Generator) -> Draft:
    """Whether there is a thing of any colour and any shape."""
    return _ask_either(rng, PAIRS, {f"{thing.color} {thing.shape}" for thing in scene.things})


def ask_single(scene: SceneLike, rng: Generator) -> Draft:
    """Whether there is a thing of some colour, or of some shape."""
    things = scene.things
    there = {f"{thing.color} thing" for thing in things} | {thing.shape for thing in things}
    return _ask_either(rng, SINGLES, there)


def _ask_either(rng: Generator, names: Iterable[str], there: set[str]) -> Draft:
    """Yes and no equally often, where both are possible."""
    answer = "yes" if rng.random() < 0.5 else "no"
    options = [name for name in names if (name in there) == (answer == "yes")]
    return (answer, {"name": options[int(rng.integers(len(options)))]}) if options else None


def limit_phrasings(count: int) -> QuestionSet:
    """The questions about scenes and the easy ones, put in so many ways at most."""
    ways = SCENE_QUESTIONS.phrasings
    ways = {**ways, "pair": ways["exist"], "single": ways["exist"]}
    return replace(
        SCENE_QUESTIONS,
        fine={**SCENE_QUESTIONS.fine, "pair": ask_pair, "single": ask_single},
        phrasings={kind: each[:count] for kind, each in ways.items()},
    )
