"""The background of a scene, patch by patch: what lies there and how light it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from tokencover_models.pebble.vocabulary import COLOR_WORDS, STUFF, TINTS

DECORATED_SHARE: Final = 0.3


@dataclass(frozen=True)
class Recipe:
    """How the ground of one place is made.

    Attributes
    ----------
    areas
        Kinds that form large smooth areas, with their fraction of the picture.
    decorations
        Kinds that are sprinkled over it, one patch each.
    """

    areas: tuple[tuple[str, float], ...]
    decorations: tuple[str, ...]


RECIPES: Final = {
    "meadow": Recipe((("grass", 0.75), ("soil", 0.25)), ("leaf", "bloom", "pebble", "twig")),
    "beach": Recipe((("sand", 0.6), ("water", 0.4)), ("shell", "pebble", "bubble", "twig")),
    "night": Recipe((("sky", 0.65), ("cloud", 0.35)), ("sparkle", "flake", "leaf", "bubble")),
    "snow": Recipe((("frost", 0.7), ("ice", 0.3)), ("flake", "twig", "pebble", "sparkle")),
    "desert": Recipe((("sand", 0.65), ("rock", 0.35)), ("cactus", "pebble", "twig", "shell")),
    "pond": Recipe((("water", 0.7), ("grass", 0.3)), ("lily", "bubble", "leaf", "bloom")),
}


@dataclass(frozen=True, eq=False)
class Ground:
    """Kind and tint of every patch.

    Attributes
    ----------
    area
        Kind of the area underneath, indices into ``STUFF``, shape (24, 24).
    stuff
        What is seen there: the area's kind or a decoration, indices into ``STUFF``.
    color
        Colour of the decoration, indices into ``COLOR_WORDS``, or -1 where there is none.
    tint
        Indices into ``TINTS``.
    light
        Lightness between -1 and 1 that the drawing uses; ``tint`` is its third.
    """

    area: NDArray[np.int64]
    stuff: NDArray[np.int64]
    color: NDArray[np.int64]
    tint: NDArray[np.int64]
    light: NDArray[np.float64]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ground) and all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("area", "stuff", "color", "light")
        )

    def __hash__(self) -> int:
        return hash((self.area.tobytes(), self.stuff.tobytes(), self.color.tobytes()))


def make_smooth_noise(rng: Generator, coarse: int, size: int) -> NDArray[np.float64]:
    """Smooth random field with values ranked evenly between 0 and 1, shape (size, size)."""
    knots = rng.standard_normal((coarse + 1, coarse + 1))
    position = np.linspace(0, coarse, size, endpoint=False)
    index = position.astype(int)
    part = position - index
    blend = part * part * (3 - 2 * part)
    rows = knots[index] * (1 - blend)[:, None] + knots[index + 1] * blend[:, None]
    field = rows[:, index] * (1 - blend) + rows[:, index + 1] * blend
    ranks = np.empty(field.size)
    ranks[np.argsort(field, axis=None, kind="stable")] = np.arange(field.size) / field.size
    return ranks.reshape(size, size)


def make_ground(rng: Generator, place: str, size: int) -> Ground:
    """Lay out the ground of a place.

    Parameters
    ----------
    rng
        Source of randomness.
    place
        One of ``PLACES``.
    size
        Patches a side.
    """
    recipe = RECIPES[place]
    field = make_smooth_noise(rng, 4, size)
    area = np.zeros((size, size), dtype=np.int64)
    start = 0.0
    for kind, share in recipe.areas:
        area[(field >= start) & (field < start + share)] = STUFF.index(kind)
        start += share
    kinds = np.array([STUFF.index(kind) for kind in recipe.decorations])
    decorated = rng.random((size, size)) < DECORATED_SHARE
    stuff = np.where(decorated, rng.choice(kinds, size=(size, size)), area)
    color = np.where(decorated, rng.integers(len(COLOR_WORDS), size=(size, size)), -1)
    light = 2 * make_smooth_noise(rng, 6, size) - 1
    tint = np.minimum((light + 1) * len(TINTS) / 2, len(TINTS) - 1).astype(np.int64)
    return Ground(area=area, stuff=stuff, color=color, tint=tint, light=light)
