"""What a clip shows: a scene in eight frames, made from a seed and from nothing else.

A frame is a 3 x 3 lattice of cells, each 4 x 4 patches of 8 px. In every cell one object may stay
for some of the early frames and another one for some of the late ones. In one frame all objects are
gone. In most frames a small animal, one patch large, passes by; no other frame shows it. The ground
lies still, and the upper left patch counts the frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import Generator

from tokencover_models.pebble.data.ground import Ground, make_ground
from tokencover_models.pebble.data.scene import (
    CELL_PATCHES,
    Animal,
    Thing,
    choose_spot,
    make_things,
    mark_covered,
    start_rng,
)
from tokencover_models.pebble.vocabulary import ANIMALS, COLOR_WORDS, FRAMES, PLACES, REGIONS

FRAME_COUNT: Final = len(FRAMES)
HALF_CLIP: Final = FRAME_COUNT // 2
FRAME_CELLS: Final = 3
FRAME_GRID: Final = FRAME_CELLS * CELL_PATCHES
FRAME_TOKENS: Final = 1 + FRAME_GRID**2
"""The class token of a frame is a visual token, too."""
CLIP_TOKENS: Final = FRAME_COUNT * FRAME_TOKENS
COUNTER: Final = (0, 0)
ABSENT_SHARE: Final = 0.1
SHORTEST_STAY: Final = 2
LEANING_VISITORS: Final = 4
VISITOR_MAJORITY_SHARE: Final = 0.4


@dataclass(frozen=True)
class Visitor(Thing):
    """An object with the frames that show it, counted from 0; it does not move."""

    frames: tuple[int, ...]

    @property
    def region(self) -> str:
        """Word for the ninth of the frame the object is in."""
        return REGIONS[(self.row // CELL_PATCHES) * FRAME_CELLS + self.column // CELL_PATCHES]


@dataclass(frozen=True)
class Passer(Animal):
    """An animal with the one frame that shows it."""

    frame: int


@dataclass(frozen=True)
class Clip:
    """Everything a clip shows.

    Attributes
    ----------
    seed
        What the clip was made from; equal seeds give equal clips.
    place
        Kind of background.
    things, animals
        What comes and goes in front of it; no two animals share a frame.
    empty_frame
        The one frame without any object.
    ground
        Kind and tint of every patch of the background.
    """

    seed: int
    place: str
    things: tuple[Visitor, ...]
    animals: tuple[Passer, ...]
    empty_frame: int
    ground: Ground

    def things_in(self, frame: int) -> tuple[Visitor, ...]:
        """Objects that a frame shows."""
        return tuple(thing for thing in self.things if frame in thing.frames)

    def animals_in(self, frame: int) -> tuple[Passer, ...]:
        """The animal that a frame shows, if any."""
        return tuple(animal for animal in self.animals if animal.frame == frame)


def make_clip(seed: int) -> Clip:
    """Make the clip that belongs to a seed.

    Parameters
    ----------
    seed
        Any integer from 0.

    Returns
    -------
    Clip
        Always the same one for the same seed.
    """
    rng = start_rng(seed, 0xC11B, "clip")
    place = str(rng.choice(PLACES))
    empty = int(rng.integers(FRAME_COUNT))
    things = _make_visitors(rng, _choose_stays(rng, empty))
    return Clip(
        seed=seed,
        place=place,
        things=things,
        animals=_make_passers(rng, things),
        empty_frame=empty,
        ground=make_ground(rng, place, FRAME_GRID),
    )


def _choose_stays(rng: Generator, empty: int) -> list[tuple[int, tuple[int, ...]]]:
    """Cells with the frames in which something stands there; the empty frame is left out."""
    stays = []
    for half in range(2):
        for cell in range(FRAME_CELLS**2):
            length = int(rng.integers(SHORTEST_STAY, HALF_CLIP + 1))
            start = half * HALF_CLIP + int(rng.integers(HALF_CLIP - length + 1))
            # The first cell is always taken, so that no frame but the empty one is without things.
            if cell == 0:
                start, length = half * HALF_CLIP, HALF_CLIP
            elif rng.random() < ABSENT_SHARE:
                continue
            frames = tuple(f for f in range(start, start + length) if f != empty)
            stays.append((cell, frames))
    return stays


def _make_visitors(rng: Generator, stays: list[tuple[int, tuple[int, ...]]]) -> tuple[Visitor, ...]:
    late = np.array([frames[0] >= HALF_CLIP for _, frames in stays])
    cells = np.array([divmod(cell, FRAME_CELLS) for cell, _ in stays])
    things = make_things(rng, cells, (late, late), LEANING_VISITORS, VISITOR_MAJORITY_SHARE)
    # Clear of the counter in the corner.
    clear = {"row": 2, "column": 2}
    return tuple(
        Visitor(**{**vars(thing), **(clear if cell == 0 else {}), "frames": frames})
        for thing, (cell, frames) in zip(things, stays, strict=True)
    )


def _make_passers(rng: Generator, things: tuple[Visitor, ...]) -> tuple[Passer, ...]:
    """Six to eight animals, no kind and no frame twice."""
    count = int(rng.integers(6, FRAME_COUNT + 1))
    kinds = rng.permutation(ANIMALS)[:count]
    frames = np.sort(rng.permutation(FRAME_COUNT)[:count])
    colors = rng.choice(COLOR_WORDS, size=count)
    passers = []
    for kind, frame, color in zip(kinds, frames.tolist(), colors, strict=True):
        taken = mark_covered([thing for thing in things if frame in thing.frames], FRAME_GRID)
        taken[COUNTER] = True
        row, column = choose_spot(rng, ~taken)
        passers.append(Passer(str(kind), str(color), row, column, frame))
    return tuple(passers)
