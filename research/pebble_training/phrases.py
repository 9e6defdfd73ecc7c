"""Short descriptions of what a scene shows, one for each object: what captions are made of.

A phrase is an object's words in any order. Every word but the first can be reported from the words
before it and the image, so a phrase asks for as many look-ups as it has words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from tokencover_models.pebble.data.scene import GRID, Animal, Scene, Thing

PHRASE_WORDS = 4


@dataclass(frozen=True)
class Phrase:
    """Words of one object or animal.

    Attributes
    ----------
    kind
        ``"thing"`` or ``"animal"``.
    words
        Its words in the order in which they are said.
    """

    kind: str
    words: tuple[str, ...]


def describe_objects(scene: Scene, rng: Generator) -> list[Phrase]:
    """Describe every object and animal of a scene once, in any order.

    Parameters
    ----------
    scene
        What is shown.
    rng
        Source of the orders.
    """
    told: list[tuple[str, tuple[str, ...]]] = [
        ("thing", (t.color, t.shape, t.digit, t.region)) for t in scene.things
    ]
    told += [("animal", (a.color, a.kind, a.region)) for a in scene.animals]
    phrases = []
    for index in rng.permutation(len(told)):
        kind, words = told[index]
        phrases.append(Phrase(kind, tuple(words[i] for i in rng.permutation(len(words)))))
    return phrases


def restrict_scene(scene: Scene, patches: NDArray[np.int64]) -> Scene:
    """A scene without the objects and animals whose own patch is not among those given.

    Parameters
    ----------
    scene
        The whole scene.
    patches
        Indices of patches, 0 to 575.
    """
    shown = set(patches.tolist())

    def is_shown(part: Thing | Animal) -> bool:
        return part.row * GRID + part.column in shown

    return replace(
        scene,
        things=tuple(thing for thing in scene.things if is_shown(thing)),
        animals=tuple(animal for animal in scene.animals if is_shown(animal)),
    )
