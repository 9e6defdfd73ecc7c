"""Describes every patch of a scene in words, as the vision tower is taught to do.

A patch's *description* is a weighted sum of word vectors. An object is described in the patch that
holds its centre, an animal in its own, and every other patch by the ground that shows there (or as
the rim of an object), always together with where it lies. Ground is described as richly as things
are; otherwise its tokens would collapse into one vector and pruning would be too easy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tokencover.pebble.scene import CELL_PATCHES, GRID, Animal, Scene, Thing, covered
from tokencover.pebble.vocabulary import (
    ANIMALS,
    CLIP_WORD_IDS,
    COLORS,
    COLUMNS,
    DIGITS,
    PLACES,
    REGIONS,
    ROWS,
    SHAPES,
    STUFF,
    TINTS,
    WORDS,
)

NONE: Final = -1


@dataclass(frozen=True)
class Group:
    """Words of which a patch has at most one.

    Attributes
    ----------
    name
        Name of the group.
    words
        Its words.
    weight
        Share of such a word in a patch's description.
    """

    name: str
    words: tuple[str, ...]
    weight: float

    @property
    def ids(self) -> list[int]:
        """Token ids of the words."""
        return [CLIP_WORD_IDS[word] for word in self.words]


GROUPS: Final = (
    Group("color", COLORS, 1.0),
    Group("shape", SHAPES, 1.0),
    Group("digit", DIGITS, 1.0),
    Group("animal", ANIMALS, 1.0),
    Group("stuff", STUFF, 1.0),
    Group("tint", TINTS, 0.6),
    Group("place", PLACES, 0.4),
    Group("region", REGIONS, 0.7),
    Group("row", ROWS, 0.5),
    Group("column", COLUMNS, 0.5),
)
GROUP_INDEX: Final = {group.name: index for index, group in enumerate(GROUPS)}


def describe(scene: Scene) -> NDArray[np.int64]:
    """Labels of every patch.

    Parameters
    ----------
    scene
        What the picture shows.

    Returns
    -------
    array of shape (576, len(GROUPS))
        Index of the patch's word within each group, or -1 where it has none.
    """
    labels = np.full((GRID, GRID, len(GROUPS)), NONE, dtype=np.int64)
    index = GROUP_INDEX
    labels[..., index["stuff"]] = scene.ground.stuff
    labels[..., index["color"]] = scene.ground.color
    hidden = covered(scene.things)
    labels[hidden, index["stuff"]] = STUFF.index("rim")
    labels[hidden, index["color"]] = NONE
    labels[..., index["tint"]] = scene.ground.tint
    labels[..., index["place"]] = PLACES.index(scene.place)
    steps = np.arange(GRID)
    labels[..., index["row"]] = (steps // CELL_PATCHES)[:, None]
    labels[..., index["column"]] = steps // CELL_PATCHES
    third = steps // (GRID // 3)
    labels[..., index["region"]] = third[:, None] * 3 + third
    describe_objects(labels, index, scene.things, scene.animals)
    return labels.reshape(GRID * GRID, len(GROUPS))


def describe_objects(
    labels: NDArray[np.int64],
    index: Mapping[str, int],
    things: Iterable[Thing],
    animals: Iterable[Animal],
) -> None:
    """Write what objects and animals are over the ground's labels, in place.

    Parameters
    ----------
    labels
        Of one picture, shape (rows, columns, groups).
    index
        Place of each group among them.
    things, animals
        What is seen in front of the ground.
    """
    for thing in things:
        patch = labels[thing.row, thing.column]
        patch[[index["stuff"], index["tint"], index["place"]]] = NONE
        patch[index["color"]] = COLORS.index(thing.color)
        patch[index["shape"]] = SHAPES.index(thing.shape)
        patch[index["digit"]] = DIGITS.index(thing.digit)
    for animal in animals:
        patch = labels[animal.row, animal.column]
        patch[[index["stuff"], index["tint"], index["place"]]] = NONE
        patch[index["animal"]] = ANIMALS.index(animal.kind)
        patch[index["color"]] = COLORS.index(animal.color)


def mixing_weights(
    labels: NDArray[np.int64], groups: tuple[Group, ...] = GROUPS, words: int = len(WORDS)
) -> NDArray[np.float32]:
    """Weight of every word of the vocabulary in every patch.

    Parameters
    ----------
    labels
        What `describe` returns, shape (..., len(groups)).
    groups
        What the labels stand for.
    words
        Size of the vocabulary.

    Returns
    -------
    array of shape (..., words)
        Multiply with the word vectors to get the patches' descriptions.
    """
    weights = np.zeros((*labels.shape[:-1], words), dtype=np.float32)
    flat = weights.reshape(-1, words)
    for index, group in enumerate(groups):
        chosen = labels[..., index].reshape(-1)
        rows = np.flatnonzero(chosen != NONE)
        flat[rows, np.array(group.ids)[chosen[rows]]] = group.weight
    return weights
