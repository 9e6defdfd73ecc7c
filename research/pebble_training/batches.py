"""Training batches, made on the fly from seeds: nothing is stored and nothing repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from research.pebble_training.packed_questions import PackedQuestions, pack_questions
from research.pebble_training.patch_labels import (
    CLIP_GROUPS,
    NONE,
    SCENE_GROUPS,
    WordGroup,
    label_clip,
    label_scene,
    weigh_words,
)
from tokencover_models.pebble.data import (
    CLIP_QUESTIONS,
    SCENE_QUESTIONS,
    Question,
    draw_clip,
    draw_scene,
    make_clip,
    make_scene,
)
from tokencover_models.pebble.model import normalise_clip, normalise_pictures
from tokencover_models.pebble.vocabulary import CLIP_WORDS, PICTURE_WORDS


@dataclass(frozen=True)
class Batch:
    """What one training step sees.

    Attributes
    ----------
    pixels
        Normalised images, shape (images, 3, 192, 192); of videos (videos, 8, 3, 96, 96).
    labels
        Words of every visual token, shape (images, 576, groups); of videos (videos, 1160, groups).
    weights
        The same as weights over the vocabulary, shape (images, 576, words).
    questions
        Per image.
    pack
        The questions as tokens.
    """

    pixels: Tensor
    labels: Tensor
    weights: Tensor
    questions: list[list[Question]]
    pack: PackedQuestions


def make_picture_batch(seeds: Sequence[int], kinds: Sequence[str], visual_tokens: int) -> Batch:
    """Make a batch of images.

    Parameters
    ----------
    seeds
        One scene each.
    kinds
        Kinds of questions to ask about each scene.
    visual_tokens
        How many patches the decoder is shown: 576, or fewer to start with, which always include
        every object and animal.
    """
    scenes = [make_scene(seed) for seed in seeds]
    labels = np.stack([label_scene(scene) for scene in scenes])
    questions = [SCENE_QUESTIONS.ask(scene, kinds) for scene in scenes]
    positions = _choose_positions(labels, SCENE_GROUPS, seeds, visual_tokens)
    return Batch(
        pixels=normalise_pictures([draw_scene(scene) for scene in scenes]),
        labels=torch.from_numpy(labels),
        weights=torch.from_numpy(weigh_words(labels, SCENE_GROUPS, len(PICTURE_WORDS))),
        questions=questions,
        pack=pack_questions(questions, len(kinds), positions, labels.shape[1]),
    )


def make_clip_batch(seeds: Sequence[int], kinds: Sequence[str], visual_tokens: int) -> Batch:
    """Make a batch of videos; parameters as in `make_picture_batch`, with 1160 tokens in all."""
    clips = [make_clip(seed) for seed in seeds]
    labels = np.stack([label_clip(clip) for clip in clips])
    questions = [CLIP_QUESTIONS.ask(clip, kinds) for clip in clips]
    positions = _choose_positions(labels, CLIP_GROUPS, seeds, visual_tokens)
    return Batch(
        pixels=torch.stack([normalise_clip(draw_clip(clip)) for clip in clips]),
        labels=torch.from_numpy(labels),
        weights=torch.from_numpy(weigh_words(labels, CLIP_GROUPS, len(CLIP_WORDS))),
        questions=questions,
        pack=pack_questions(questions, len(kinds), positions, labels.shape[1]),
    )


def _choose_positions(
    labels: NDArray[np.int64],
    groups: tuple[WordGroup, ...],
    seeds: Sequence[int],
    visual_tokens: int,
) -> Tensor:
    """Tokens the decoder is shown: all that are no ground, and some ground drawn by seed.

    Parameters
    ----------
    labels
        Words of every token, shape (images, tokens, groups).
    groups
        What the labels stand for.
    seeds
        One for each image.
    visual_tokens
        How many to show; all, when there are not more.

    Returns
    -------
    Tensor
        Their indices in ascending order, shape (images, shown).
    """
    places = labels.shape[1]
    if visual_tokens >= places:
        return torch.arange(places).expand(len(seeds), -1)
    stuff = [group.name for group in groups].index("stuff")
    rows = []
    for things, seed in zip(labels[..., stuff] == NONE, seeds, strict=True):
        order = np.random.default_rng([seed, 0x5E7]).random(places) - things
        rows.append(np.sort(np.argsort(order)[:visual_tokens]))
    return torch.from_numpy(np.stack(rows))
