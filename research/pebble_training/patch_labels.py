"""Words for every patch of a scene or video, as labels: the vision encoder is taught to tell them.

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

from tokencover_models.pebble.data.clip import (
    COUNTER,
    FRAME_COUNT,
    FRAME_GRID,
    Clip,
)
from tokencover_models.pebble.data.ground import Ground
from tokencover_models.pebble.data.scene import (
    CELL_PATCHES,
    GRID,
    PICTURE_TOKENS,
    Animal,
    Scene,
    Thing,
    mark_covered,
)
from tokencover_models.pebble.vocabulary import (
    ANIMALS,
    CLIP_WORD_IDS,
    COLOR_WORDS,
    COLUMN_WORDS,
    DIGITS,
    FRAMES,
    PICTURE_WORDS,
    PLACES,
    REGIONS,
    ROW_WORDS,
    SHAPES,
    STUFF,
    TINTS,
)

NONE: Final = -1


@dataclass(frozen=True)
class WordGroup:
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


SCENE_GROUPS: Final = (
    WordGroup("color", COLOR_WORDS, 1.0),
    WordGroup("shape", SHAPES, 1.0),
    WordGroup("digit", DIGITS, 1.0),
    WordGroup("animal", ANIMALS, 1.0),
    WordGroup("stuff", STUFF, 1.0),
    WordGroup("tint", TINTS, 0.6),
    WordGroup("place", PLACES, 0.4),
    WordGroup("region", REGIONS, 0.7),
    WordGroup("row", ROW_WORDS, 0.5),
    WordGroup("column", COLUMN_WORDS, 0.5),
)
# Three rows and columns of cells are what regions say already. One of their words stays, for all
# tokens: it is how the decoder tells an image from words.
CLIP_GROUPS: Final = (
    *(group for group in SCENE_GROUPS if group.name not in {"row", "column"}),
    WordGroup("frame", FRAMES, 1.0),
    WordGroup("seen", COLUMN_WORDS[-1:], 1.0),
)
SCENE_GROUP_INDEX: Final = {group.name: index for index, group in enumerate(SCENE_GROUPS)}
CLIP_GROUP_INDEX: Final = {group.name: index for index, group in enumerate(CLIP_GROUPS)}


def label_scene(scene: Scene) -> NDArray[np.int64]:
    """Label every patch of a scene.

    Parameters
    ----------
    scene
        What the image shows.

    Returns
    -------
    array of shape (576, len(SCENE_GROUPS))
        Index of the patch's word within each group, or -1 where it has none.
    """
    index = SCENE_GROUP_INDEX
    labels = _label_ground(index, scene.ground, scene.place, mark_covered(scene.things))
    cells = np.arange(GRID) // CELL_PATCHES
    labels[..., index["row"]] = cells[:, None]
    labels[..., index["column"]] = cells
    _label_objects(labels, index, scene.things, scene.animals)
    return labels.reshape(PICTURE_TOKENS, len(SCENE_GROUPS))


def label_clip(clip: Clip) -> NDArray[np.int64]:
    """Label every visual token of a video.

    Parameters
    ----------
    video
        What is shown.

    Returns
    -------
    array of shape (1160, len(CLIP_GROUPS))
        Frame after frame, each with its class token first, which tells the frame and the place:
        index of the token's word within each group, or -1 where it has none.
    """
    return np.concatenate([_label_frame(clip, frame) for frame in range(FRAME_COUNT)])


def _label_frame(clip: Clip, frame: int) -> NDArray[np.int64]:
    index, things = CLIP_GROUP_INDEX, clip.things_in(frame)
    hidden = mark_covered(things, FRAME_GRID)
    hidden[COUNTER] = True
    labels = _label_ground(index, clip.ground, clip.place, hidden)
    labels[..., index["frame"]] = frame
    labels[..., index["seen"]] = 0
    _label_objects(labels, index, things, clip.animals_in(frame))
    summary = np.full((1, len(index)), NONE, dtype=np.int64)
    place = PLACES.index(clip.place)
    summary[0, [index["place"], index["frame"], index["seen"]]] = place, frame, 0
    return np.concatenate([summary, labels.reshape(-1, len(index))])


def _label_ground(
    index: Mapping[str, int], ground: Ground, place: str, hidden: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Labels of ground alone, shape (rows, columns, groups), with a rim where it is hidden."""
    size = len(hidden)
    labels = np.full((size, size, len(index)), NONE, dtype=np.int64)
    labels[..., index["stuff"]] = ground.stuff
    labels[..., index["color"]] = ground.color
    labels[hidden, index["stuff"]] = STUFF.index("rim")
    labels[hidden, index["color"]] = NONE
    labels[..., index["tint"]] = ground.tint
    labels[..., index["place"]] = PLACES.index(place)
    third = np.arange(size) // (size // 3)
    labels[..., index["region"]] = third[:, None] * 3 + third
    return labels


def _label_objects(
    labels: NDArray[np.int64],
    index: Mapping[str, int],
    things: Iterable[Thing],
    animals: Iterable[Animal],
) -> None:
    """Write what objects and animals are over the ground's labels, in place.

    Parameters
    ----------
    labels
        Of one image, shape (rows, columns, groups).
    index
        Place of each group among them.
    things, animals
        What is seen in front of the ground.
    """
    for thing in things:
        patch = labels[thing.row, thing.column]
        patch[[index["stuff"], index["tint"], index["place"]]] = NONE
        patch[index["color"]] = COLOR_WORDS.index(thing.color)
        patch[index["shape"]] = SHAPES.index(thing.shape)
        patch[index["digit"]] = DIGITS.index(thing.digit)
    for animal in animals:
        patch = labels[animal.row, animal.column]
        patch[[index["stuff"], index["tint"], index["place"]]] = NONE
        patch[index["animal"]] = ANIMALS.index(animal.kind)
        patch[index["color"]] = COLOR_WORDS.index(animal.color)


def weigh_words(
    labels: NDArray[np.int64],
    groups: tuple[WordGroup, ...] = SCENE_GROUPS,
    words: int = len(PICTURE_WORDS),
) -> NDArray[np.float32]:
    """Weigh every word of the vocabulary in every patch.

    Parameters
    ----------
    labels
        What `label_scene` or `label_clip` returns, shape (..., len(groups)).
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
