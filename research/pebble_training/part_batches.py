"""What a step of the image recipe sees: images, and parts of them that the decoder is shown.

The decoder is asked about what it is shown and about nothing else, so a part is as good to learn
from as a whole image, and much cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from research.pebble_training.holdings import HOLDINGS, label_holdings
from research.pebble_training.lessons import Lesson
from research.pebble_training.packed_questions import (
    PackedQuestions,
    pack_phrases,
    pack_questions,
)
from research.pebble_training.patch_labels import NONE, SCENE_GROUP_INDEX, label_scene
from research.pebble_training.phrases import describe_objects, restrict_scene
from tokencover_models.pebble.data import (
    PICTURE_TOKENS,
    SCENE_QUESTIONS,
    Question,
    draw_scene,
    make_scene,
)
from tokencover_models.pebble.model import normalise_pictures

# Objects in a part that a copy of the class token sees, and how many such parts there are.
GLANCES: Final = ((1, 10), (2, 10), (4, 8), (8, 4))
GLANCED_GROUND: Final = (0, 4, 16, 64)


@dataclass(frozen=True)
class PartBatch:
    """Images of one step with what is reported and asked about parts of them.

    Attributes
    ----------
    pixels
        Normalised images, shape (images, 3, 192, 192).
    labels
        Words of every patch, shape (images, 576, groups).
    holdings
        What the images hold, shape (images, HOLDINGS).
    glances
        Patches of the parts that copies of the class token see, bool, (images, parts, 576).
    glanced
        What those hold, shape (images, parts, HOLDINGS).
    owners
        Which image each part is of, shape (parts,).
    positions
        Patches of each part, shape (parts, visual).
    phrases
        The phrases about each part, as tokens.
    asked
        The questions about each part as tokens; None in stages that ask none.
    questions
        The same as questions.
    """

    pixels: Tensor
    labels: Tensor
    holdings: Tensor
    glances: Tensor
    glanced: Tensor
    owners: Tensor
    positions: Tensor
    phrases: PackedQuestions
    asked: PackedQuestions | None
    questions: list[list[Question]]


def make_part_batch(lesson: Lesson) -> PartBatch:
    """Make the batch of a step; the same one for the same lesson."""
    stage = lesson.stage
    scenes = [make_scene(seed) for seed in lesson.seeds]
    labels = np.stack([label_scene(scene) for scene in scenes])
    owners, positions, phrases, questions = [], [], [], []
    glances, glanced = [], []
    for index, scene in enumerate(scenes):
        rng = np.random.default_rng([scene.seed, 0xCA9])
        is_ground = labels[index, :, SCENE_GROUP_INDEX["stuff"]] != NONE
        if stage.vision_rate:
            dealt = [
                part
                for things, count in GLANCES
                for part in deal_parts(
                    rng, is_ground, things, things + int(rng.choice(GLANCED_GROUND))
                )[:count]
            ]
            glances.append([np.isin(np.arange(PICTURE_TOKENS), part) for part in dealt])
            parts = [restrict_scene(scene, part) for part in dealt]
            glanced.append([label_holdings(part, whole=False) for part in parts])
        for part in deal_parts(rng, is_ground, stage.things, lesson.visual_tokens):
            shown = restrict_scene(scene, part)
            owners.append(index)
            positions.append(part)
            phrases.append(describe_objects(shown, rng))
            questions.append(SCENE_QUESTIONS.ask(shown, lesson.kinds) if stage.asks else [])
    patches = torch.from_numpy(np.stack(positions))
    numbers, numbered = patches, PICTURE_TOKENS
    if lesson.renumbered:
        numbers, numbered = torch.arange(patches.shape[1]).expand_as(patches), patches.shape[1]
    return PartBatch(
        pixels=normalise_pictures([draw_scene(scene) for scene in scenes]),
        labels=torch.from_numpy(labels),
        holdings=torch.from_numpy(np.stack([label_holdings(scene) for scene in scenes])),
        glances=_stack(glances, (len(scenes), 0, PICTURE_TOKENS)).bool(),
        glanced=_stack(glanced, (len(scenes), 0, HOLDINGS)),
        owners=torch.tensor(owners),
        positions=patches,
        phrases=pack_phrases(phrases, stage.phrases, numbers, numbered),
        asked=pack_questions(questions, len(lesson.kinds), numbers, numbered)
        if stage.asks
        else None,
        questions=questions,
    )


def _stack(arrays: Sequence[Sequence[NDArray[Any]]], empty: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(np.array(arrays)) if arrays else torch.zeros(empty)


def deal_parts(
    rng: Generator, is_ground: NDArray[np.bool_], things: int, visual_tokens: int
) -> list[NDArray[np.int64]]:
    """Choose the patches of each part of an image.

    Parameters
    ----------
    rng
        Source of randomness.
    is_ground
        Which patches hold no object's centre and no animal, shape (576,).
    things
        How many objects and animals a part has: all of them are dealt, and the rest of a part is
        ground. With 0 there is one part of patches drawn at random, whatever they show.
    visual_tokens
        Patches of a part.

    Returns
    -------
    list of arrays of shape (visual_tokens,)
        Indices in ascending order.
    """
    if visual_tokens >= len(is_ground):
        return [np.arange(len(is_ground))]
    if things == 0:
        return [np.sort(rng.permutation(len(is_ground))[:visual_tokens])]
    order = rng.permutation(np.flatnonzero(~is_ground))
    ground = np.flatnonzero(is_ground)
    parts = []
    for start in range(0, len(order) - things + 1, things):
        rest = rng.permutation(ground)[: visual_tokens - things]
        parts.append(np.sort(np.concatenate([order[start : start + things], rest])))
    return parts
