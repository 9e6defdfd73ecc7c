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

from tokencover.errors import InputError
from tokencover.pebble.ground import Ground, make_ground
from tokencover.pebble.scene import CELL_PATCHES, Animal, Thing, covered, leaning_labels
from tokencover.pebble.vocabulary import ANIMALS, COLORS, DIGITS, FRAMES, PLACES, REGIONS, SHAPES

FRAME_COUNT: Final = len(FRAMES)
HALF: Final = FRAME_COUNT // 2
CELLS: Final = 3
GRID: Final = CELLS * CELL_PATCHES
COUNTER: Final = (0, 0)
ABSENT_SHARE: Final = 0.1
SHORTEST_STAY: Final = 2
LEANING: Final = 4
MAJORITY_SHARE: Final = 0.4


@dataclass(frozen=True)
class Visitor(Thing):
    """An object with the frames that show it, counted from 0; it does not move."""

    frames: tuple[int, ...]

    @property
    def region(self) -> str:
        """Word for the ninth of the frame the object is in."""
        return REGIONS[(self.row // CELL_PATCHES) * CELLS + self.column // CELL_PATCHES]


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
    if seed < 0:
        raise InputError(f"a clip's seed must be 0 or more, got {seed}; pass its absolute value")
    rng = np.random.default_rng([seed, 0xC11B])
    place = str(rng.choice(PLACES))
    empty = int(rng.integers(FRAME_COUNT))
    things = _visitors(rng, _stays(rng, empty))
    return Clip(
        seed=seed,
        place=place,
        things=things,
        animals=_passers(rng, things),
        empty_frame=empty,
        ground=make_ground(rng, place, GRID),
    )


def _stays(rng: Generator, empty: int) -> list[tuple[int, tuple[int, ...]]]:
    """Cells with the frames in which something stands there; the empty frame is left out."""
    stays = []
    for half in range(2):
        for cell in range(CELLS * CELLS):
            length = int(rng.integers(SHORTEST_STAY, HALF + 1))
            start = half * HALF + int(rng.integers(HALF - length + 1))
            # The first cell is always taken, so that no frame but the empty one is without things.
            if cell == 0:
                start, length = half * HALF, HALF
            elif rng.random() < ABSENT_SHARE:
                continue
            frames = tuple(f for f in range(start, start + length) if f != empty)
            stays.append((cell, frames))
    return stays


def _visitors(rng: Generator, stays: list[tuple[int, tuple[int, ...]]]) -> tuple[Visitor, ...]:
    late = np.array([frames[0] >= HALF for _, frames in stays])
    majority = round(MAJORITY_SHARE * len(stays))
    colors = leaning_labels(rng, late, COLORS, LEANING, majority)
    shapes = leaning_labels(rng, late, SHAPES, LEANING, majority)
    digits = rng.choice(DIGITS, size=len(stays))
    corners = rng.integers(1, 3, size=(len(stays), 2))
    jitters = rng.integers(-1, 2, size=(len(stays), 2))
    visitors = []
    for i, (cell, frames) in enumerate(stays):
        # Clear of the counter in the corner.
        down, right = (2, 2) if cell == 0 else corners[i]
        visitors.append(
            Visitor(
                color=colors[i],
                shape=shapes[i],
                digit=str(digits[i]),
                row=int(cell // CELLS * CELL_PATCHES + down),
                column=int(cell % CELLS * CELL_PATCHES + right),
                jitter=(int(jitters[i, 0]), int(jitters[i, 1])),
                frames=frames,
            )
        )
    return tuple(visitors)


def _passers(rng: Generator, things: tuple[Visitor, ...]) -> tuple[Passer, ...]:
    """Six to eight animals, no kind and no frame twice."""
    count = int(rng.integers(6, FRAME_COUNT + 1))
    kinds = rng.permutation(ANIMALS)[:count]
    frames = np.sort(rng.permutation(FRAME_COUNT)[:count])
    colors = rng.choice(COLORS, size=count)
    passers = []
    for kind, frame, color in zip(kinds, frames.tolist(), colors, strict=True):
        taken = covered([thing for thing in things if frame in thing.frames], GRID)
        taken[COUNTER] = True
        spots = np.argwhere(~taken)
        row, column = spots[rng.integers(len(spots))]
        passers.append(Passer(str(kind), str(color), int(row), int(column), frame))
    return tuple(passers)
