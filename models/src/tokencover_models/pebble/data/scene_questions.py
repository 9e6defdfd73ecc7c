"""The questions about a scene, with answers read from the scene."""

from __future__ import annotations

from typing import Final

from numpy.random import Generator

from tokencover_models.pebble.data.phrasings import SCENE_PHRASINGS
from tokencover_models.pebble.data.questions import (
    SHARED_FINE,
    Draft,
    QuestionSet,
    ask_more,
    ask_place,
    draw_named,
    get_most_common,
    group_things,
)
from tokencover_models.pebble.data.scene import GRID, Scene

CLEARLY_MORE: Final = 3
CLEARLY_ASIDE: Final = 4


def _ask_animal_name(scene: Scene, rng: Generator) -> Draft:
    return draw_named(rng, [(animal.kind, animal.region) for animal in scene.animals], "place")


def _ask_common_color(scene: Scene, _: Generator) -> Draft:
    return get_most_common(scene.things, "color", CLEARLY_MORE)


def _ask_common_shape(scene: Scene, _: Generator) -> Draft:
    return get_most_common(scene.things, "shape", CLEARLY_MORE)


def _ask_more(scene: Scene, rng: Generator) -> Draft:
    return ask_more(rng, scene.things, CLEARLY_MORE)


def _ask_leaning(scene: Scene, rng: Generator, attribute: str, ends: tuple[str, str]) -> Draft:
    near, far = ends
    pairs = []
    for name, things in group_things(scene.things).items():
        beyond = sum(getattr(thing, attribute) >= GRID // 2 for thing in things)
        excess = 2 * beyond - len(things)
        if abs(excess) >= CLEARLY_ASIDE:
            pairs.append((far if excess > 0 else near, name))
    return draw_named(rng, pairs)


def _ask_side(scene: Scene, rng: Generator) -> Draft:
    return _ask_leaning(scene, rng, "column", ("left", "right"))


def _ask_level(scene: Scene, rng: Generator) -> Draft:
    return _ask_leaning(scene, rng, "row", ("top", "bottom"))


def _ask_empty(scene: Scene, _: Generator) -> Draft:
    return scene.empty_region, {}


SCENE_QUESTIONS: Final = QuestionSet(
    fine={
        **SHARED_FINE,
        "animal_name": _ask_animal_name,
    },
    coarse={
        "common_color": _ask_common_color,
        "common_shape": _ask_common_shape,
        "more": _ask_more,
        "side": _ask_side,
        "level": _ask_level,
        "empty": _ask_empty,
        "place": ask_place,
    },
    phrasings=SCENE_PHRASINGS,
    salt=0xA5C,
)
DEMO_SCENE_QUESTIONS: Final = ("exist", "read", "color", "where", "common_color", "place")
"""A representative few, one of each difficulty."""
