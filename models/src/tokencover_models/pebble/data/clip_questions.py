"""Questions about a clip: those a picture can be asked too, and those about when.

What is counted is what the frames show: an object that stays for three frames counts three times.
"""

from __future__ import annotations

from typing import Final

from numpy.random import Generator

from tokencover_models.pebble.data.clip import HALF_CLIP, Clip, Visitor
from tokencover_models.pebble.data.phrasings import CLIP_PHRASINGS
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
from tokencover_models.pebble.vocabulary import FRAMES

CLEARLY_MORE_SIGHTINGS: Final = 6


def _ask_when(clip: Clip, rng: Generator) -> Draft:
    return draw_named(rng, [(FRAMES[animal.frame], animal.kind) for animal in clip.animals])


def _ask_animal_then(clip: Clip, rng: Generator) -> Draft:
    pairs = [(animal.kind, FRAMES[animal.frame]) for animal in clip.animals]
    return draw_named(rng, pairs, "frame")


def _ask_order(clip: Clip, rng: Generator) -> Draft:
    pairs = []
    for one in clip.animals:
        for other in clip.animals:
            if one != other:
                winner = one if one.frame < other.frame else other
                pairs.append((winner.kind, f"the {one.kind} or the {other.kind}"))
    return draw_named(rng, pairs, "either")


def _list_sightings(clip: Clip) -> list[Visitor]:
    """Objects, each as often as frames show it."""
    return [thing for thing in clip.things for _ in thing.frames]


def _ask_common_color(clip: Clip, _: Generator) -> Draft:
    return get_most_common(_list_sightings(clip), "color", CLEARLY_MORE_SIGHTINGS)


def _ask_common_shape(clip: Clip, _: Generator) -> Draft:
    return get_most_common(_list_sightings(clip), "shape", CLEARLY_MORE_SIGHTINGS)


def _ask_more(clip: Clip, rng: Generator) -> Draft:
    return ask_more(rng, _list_sightings(clip), CLEARLY_MORE_SIGHTINGS)


def _ask_half(clip: Clip, rng: Generator) -> Draft:
    pairs = []
    for name, things in group_things(clip.things).items():
        frames = [frame for thing in things for frame in thing.frames]
        excess = 2 * sum(frame >= HALF_CLIP for frame in frames) - len(frames)
        if abs(excess) >= CLEARLY_MORE_SIGHTINGS:
            pairs.append(("late" if excess > 0 else "early", name))
    return draw_named(rng, pairs)


def _ask_empty(clip: Clip, _: Generator) -> Draft:
    return FRAMES[clip.empty_frame], {}


CLIP_QUESTIONS: Final = QuestionSet(
    fine={
        **SHARED_FINE,
        "when": _ask_when,
        "animal_then": _ask_animal_then,
        "order": _ask_order,
    },
    coarse={
        "common_color": _ask_common_color,
        "common_shape": _ask_common_shape,
        "more": _ask_more,
        "half": _ask_half,
        "empty": _ask_empty,
        "place": ask_place,
    },
    phrasings=CLIP_PHRASINGS,
    salt=0xC1A,
)
DEMO_CLIP_QUESTIONS: Final = ("read", "when", "animal_then", "common_color", "half", "place")
"""A representative few, one of each difficulty."""
