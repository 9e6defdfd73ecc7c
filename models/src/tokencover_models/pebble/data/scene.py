"""What is in a picture: a scene, made from a seed and from nothing else.

The picture is a 6 x 6 lattice of cells, each 4 x 4 patches of 8 px. A cell holds at most one
object, which covers 3 x 3 patches; one of nine regions (2 x 2 cells) is always left without any.
Small animals, one patch each, sit on patches that no object covers. Every other patch is ground,
and neighbouring ground differs in kind and tint: identical patches would make it trivially easy
for a method that looks for variety to step over the background.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from tokencover.errors import InputError
from tokencover_models.pebble.data.ground import Ground, make_ground
from tokencover_models.pebble.vocabulary import (
    ANIMALS,
    COLOR_WORDS,
    DIGITS,
    PLACES,
    REGIONS,
    SHAPES,
)

PATCH: Final = 8
GRID: Final = 24
PICTURE_TOKENS: Final = GRID**2
CELLS: Final = 6
CELL_PATCHES: Final = GRID // CELLS
REGION_CELLS: Final = CELLS // 3
MAJORITY_SHARE: Final = 0.32
LEANING_THINGS: Final = 6


@dataclass(frozen=True)
class Thing:
    """A coloured object with a number printed on it.

    Attributes
    ----------
    color, shape, digit
        Words of the vocabulary.
    row, column
        Patch that holds the object's centre and its number.
    jitter
        Offset of the drawing in pixels, (down, right), each -1, 0 or 1.
    """

    color: str
    shape: str
    digit: str
    row: int
    column: int
    jitter: tuple[int, int]

    @property
    def region(self) -> str:
        """Word for the ninth of the picture the object is in."""
        return name_region(self.row, self.column)


@dataclass(frozen=True)
class Animal:
    """A small animal that fills exactly one patch."""

    kind: str
    color: str
    row: int
    column: int

    @property
    def region(self) -> str:
        """Word for the ninth of the picture the animal is in."""
        return name_region(self.row, self.column)


@dataclass(frozen=True)
class Scene:
    """Everything a picture shows.

    Attributes
    ----------
    seed
        What the scene was made from; equal seeds give equal scenes.
    place
        Kind of background.
    things, animals
        What stands in front of it.
    empty_region
        The one region without any object.
    ground
        Kind and tint of every patch of the background.
    """

    seed: int
    place: str
    things: tuple[Thing, ...]
    animals: tuple[Animal, ...]
    empty_region: str
    ground: Ground


def name_region(row: int, column: int) -> str:
    """Word for the ninth of the picture that holds a patch.

    Parameters
    ----------
    row, column
        Patch coordinates, 0 to 23 from the top left.
    """
    side = GRID // 3
    return REGIONS[(row // side) * 3 + column // side]


def make_scene(seed: int) -> Scene:
    """Make the scene that belongs to a seed.

    Parameters
    ----------
    seed
        Any integer from 0.

    Returns
    -------
    Scene
        Always the same one for the same seed.
    """
    rng = start_rng(seed, 0x9EBB1E, "scene")
    place = str(rng.choice(PLACES))
    empty = int(rng.integers(len(REGIONS)))
    cells = _choose_cells(rng, empty)
    # Colours lean to one side along one axis and shapes along the other, so that every scene can
    # be asked about both.
    axis = int(rng.integers(2))
    sides = cells >= CELLS // 2
    leaning = (sides[:, axis], sides[:, 1 - axis])
    things = tuple(make_things(rng, cells, leaning, LEANING_THINGS, MAJORITY_SHARE))
    return Scene(
        seed=seed,
        place=place,
        things=things,
        animals=_make_animals(rng, things),
        empty_region=REGIONS[empty],
        ground=make_ground(rng, place, GRID),
    )


def start_rng(seed: int, salt: int, kind: str) -> Generator:
    """Start the random numbers of a scene or clip; the salt keeps kinds with one seed apart."""
    if seed < 0:
        raise InputError(f"a {kind}'s seed must be 0 or more, got {seed}; pass its absolute value")
    return np.random.default_rng([seed, salt])


def _choose_cells(rng: Generator, empty: int) -> NDArray[np.int64]:
    """Cells that hold an object, shape (n, 2): all but one region and at most one per other."""
    rows, columns = np.divmod(np.arange(CELLS * CELLS), CELLS)
    region = (rows // REGION_CELLS) * 3 + columns // REGION_CELLS
    keep = region != empty
    others = [index for index in range(len(REGIONS)) if index != empty]
    for index in rng.choice(others, size=int(rng.integers(0, 5)), replace=False):
        keep[rng.choice(np.flatnonzero(region == index))] = False
    return np.stack([rows[keep], columns[keep]], axis=1)


def make_things(
    rng: Generator,
    cells: NDArray[np.int64],
    far: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    leaning: int,
    majority_share: float,
) -> list[Thing]:
    """Put one object into each of some cells.

    Parameters
    ----------
    rng
        Source of randomness.
    cells
        Row and column of each cell, shape (n, 2).
    far
        Which objects lie on the far side, for colours and for shapes, shape (n,) each.
    leaning
        How many objects have the colour that leans to a side, and the shape.
    majority_share
        Share of objects that have the most common colour, and shape.
    """
    majority = round(majority_share * len(cells))
    colors = _choose_leaning(rng, far[0], COLOR_WORDS, leaning, majority)
    shapes = _choose_leaning(rng, far[1], SHAPES, leaning, majority)
    digits = rng.choice(DIGITS, size=len(cells))
    corners = rng.integers(1, 3, size=(len(cells), 2))
    jitters = rng.integers(-1, 2, size=(len(cells), 2))
    return [
        Thing(
            color=colors[i],
            shape=shapes[i],
            digit=str(digits[i]),
            row=int(cells[i, 0] * CELL_PATCHES + corners[i, 0]),
            column=int(cells[i, 1] * CELL_PATCHES + corners[i, 1]),
            jitter=(int(jitters[i, 0]), int(jitters[i, 1])),
        )
        for i in range(len(cells))
    ]


def _choose_leaning(
    rng: Generator, far: NDArray[np.bool_], labels: tuple[str, ...], leaning: int, majority: int
) -> list[str]:
    """One label for each of some objects: a majority, one that leans to a side, the rest spread.

    Parameters
    ----------
    rng
        Source of randomness.
    far
        Which objects lie on the far side, shape (n,).
    labels
        To choose from.
    leaning, majority
        How many objects get the leaning label, and the most common one.
    """
    order = rng.permutation(len(labels))
    most, aside, rest = labels[order[0]], labels[order[1]], [labels[i] for i in order[2:]]
    result = [""] * len(far)
    side = far if rng.integers(2) else ~far
    astray = int(rng.integers(2))
    _fill(rng, result, np.flatnonzero(side), aside, leaning - astray)
    _fill(rng, result, np.flatnonzero(~side), aside, astray)
    free = np.array([i for i, label in enumerate(result) if not label])
    _fill(rng, result, free, most, majority)
    free = rng.permutation([i for i, label in enumerate(result) if not label])
    for turn, index in enumerate(free):
        result[index] = rest[turn % len(rest)]
    return result


def _fill(
    rng: Generator, result: list[str], where: NDArray[np.int64], label: str, count: int
) -> None:
    for index in rng.choice(where, size=count, replace=False):
        result[index] = label


def mark_covered(things: Iterable[Thing], size: int = GRID) -> NDArray[np.bool_]:
    """Mark the patches that an object reaches, shape (size, size)."""
    mask = np.zeros((size, size), dtype=np.bool_)
    for thing in things:
        mask[thing.row - 1 : thing.row + 2, thing.column - 1 : thing.column + 2] = True
    return mask


def choose_spot(rng: Generator, free: NDArray[np.bool_]) -> tuple[int, int]:
    """Row and column of one of the free patches."""
    spots = np.argwhere(free)
    row, column = spots[rng.integers(len(spots))]
    return int(row), int(column)


def _make_animals(rng: Generator, things: tuple[Thing, ...]) -> tuple[Animal, ...]:
    """Six to nine animals, no kind and no region twice."""
    free = ~mark_covered(things)
    count = int(rng.integers(6, 10))
    kinds = rng.permutation(ANIMALS)[:count]
    regions = rng.permutation(len(REGIONS))[:count]
    colors = rng.choice(COLOR_WORDS, size=count)
    side = GRID // 3
    animals = []
    for kind, region, color in zip(kinds, regions, colors, strict=True):
        top, left = (region // 3) * side, (region % 3) * side
        row, column = choose_spot(rng, free[top : top + side, left : left + side])
        animals.append(Animal(str(kind), str(color), int(top + row), int(left + column)))
    return tuple(animals)
