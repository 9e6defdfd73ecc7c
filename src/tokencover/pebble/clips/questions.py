"""Questions about a clip: those a picture can be asked too, and those about when.

What is counted is what the frames show: an object that stays for three frames counts three times.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.random import Generator

from tokencover.pebble.clips.clip import HALF, Clip, Visitor
from tokencover.pebble.phrasings import PHRASINGS as PICTURE_PHRASINGS
from tokencover.pebble.questions import (
    COARSE,
    FINE,
    Asker,
    Drawn,
    Question,
    animal_color,
    ask_with,
    classes,
    color,
    exist,
    more_of,
    most_common,
    named,
    place,
    read,
    shape,
    where,
)
from tokencover.pebble.vocabulary import FRAMES

CLEARLY_MORE: Final = 6

PHRASINGS: Final = {
    **PICTURE_PHRASINGS,
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


def _when(clip: Clip, rng: Generator) -> Drawn:
    return named(rng, [(FRAMES[animal.frame], animal.kind) for animal in clip.animals])


def _animal_then(clip: Clip, rng: Generator) -> Drawn:
    pairs = [(animal.kind, FRAMES[animal.frame]) for animal in clip.animals]
    return named(rng, pairs, "frame")


def _order(clip: Clip, rng: Generator) -> Drawn:
    pairs = []
    for one in clip.animals:
        for other in clip.animals:
            if one != other:
                winner = one if one.frame < other.frame else other
                pairs.append((winner.kind, f"the {one.kind} or the {other.kind}"))
    return named(rng, pairs, "either")


def _shown(clip: Clip) -> list[Visitor]:
    """Objects, each as often as frames show it."""
    return [thing for thing in clip.things for _ in thing.frames]


def _common_color(clip: Clip, _: Generator) -> Drawn:
    return most_common(_shown(clip), "color", CLEARLY_MORE)


def _common_shape(clip: Clip, _: Generator) -> Drawn:
    return most_common(_shown(clip), "shape", CLEARLY_MORE)


def _more(clip: Clip, rng: Generator) -> Drawn:
    sizes = {name: len(things) for name, things in classes(_shown(clip)).items()}
    return more_of(rng, sizes, CLEARLY_MORE)


def _half(clip: Clip, rng: Generator) -> Drawn:
    pairs = []
    for name, things in classes(clip.things).items():
        frames = [frame for thing in things for frame in thing.frames]
        excess = 2 * sum(frame >= HALF for frame in frames) - len(frames)
        if abs(excess) >= CLEARLY_MORE:
            pairs.append(("late" if excess > 0 else "early", name))
    return named(rng, pairs)


def _empty(clip: Clip, _: Generator) -> Drawn:
    return FRAMES[clip.empty_frame], {}


_FINE_KINDS: Final[dict[str, Asker]] = {
    "exist": exist,
    "color": color,
    "shape": shape,
    "read": read,
    "where": where,
    "animal_color": animal_color,
    "when": _when,
    "animal_then": _animal_then,
    "order": _order,
}
_COARSE_KINDS: Final[dict[str, Asker]] = {
    "common_color": _common_color,
    "common_shape": _common_shape,
    "more": _more,
    "half": _half,
    "empty": _empty,
    "place": place,
}
_ASKERS: Final[dict[str, Asker]] = {**_FINE_KINDS, **_COARSE_KINDS}
KINDS: Final = tuple(_ASKERS)
FAMILIES: Final = {kind: FINE if kind in _FINE_KINDS else COARSE for kind in KINDS}


def ask(clip: Clip, kinds: Iterable[str] = KINDS, turn: int = 0) -> list[Question]:
    """Ask one question of each kind that the clip allows; see `tokencover.pebble.questions.ask`."""
    rng = np.random.default_rng([clip.seed, turn, 0xC1A])
    return ask_with(_ASKERS, PHRASINGS, clip, kinds, rng)
