"""Training batches, made on the fly from seeds: nothing is stored and nothing repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from tokencover.errors import InputError
from tokencover.pebble.describing import GROUP_INDEX, NONE, describe, mixing_weights
from tokencover.pebble.drawing import draw
from tokencover.pebble.model import VISUAL_TOKENS
from tokencover.pebble.packing import Pack
from tokencover.pebble.questions import Question, ask
from tokencover.pebble.scene import Scene, make_scene
from tokencover.pebble.vocabulary import ASSISTANT, CLIP_WORD_IDS, END, PAD

LENGTH: Final = 15
IGNORED: Final = -100
PIXEL_MEAN: Final = 0.5
PIXEL_STD: Final = 0.25


@dataclass(frozen=True)
class Batch:
    """What one training step sees.

    Attributes
    ----------
    pixels
        Normalised pictures, shape (pictures, 3, 192, 192).
    labels
        Words of every patch, shape (pictures, 576, groups).
    weights
        The same as weights over the vocabulary, shape (pictures, 576, words).
    questions
        Per picture.
    pack
        The questions as tokens.
    """

    pixels: Tensor
    labels: Tensor
    weights: Tensor
    questions: list[list[Question]]
    pack: Pack


def make_batch(seeds: Sequence[int], kinds: Sequence[str], visual_tokens: int) -> Batch:
    """Make a batch.

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
    labels = np.stack([describe(scene) for scene in scenes])
    questions = [ask(scene, kinds) for scene in scenes]
    is_thing = labels[..., GROUP_INDEX["stuff"]] == NONE
    return Batch(
        pixels=pixels_of(scenes),
        labels=torch.from_numpy(labels),
        weights=torch.from_numpy(mixing_weights(labels)),
        questions=questions,
        pack=make_pack(questions, len(kinds), shown(is_thing, seeds, visual_tokens), VISUAL_TOKENS),
    )


def pixels_of(scenes: Sequence[Scene]) -> Tensor:
    """Draw scenes and normalise them as the processor does, shape (scenes, 3, 192, 192)."""
    return normalised([draw(scene) for scene in scenes])


def normalised(pictures: Sequence[Image.Image]) -> Tensor:
    """Pictures of one size as the model wants them, shape (pictures, 3, height, width)."""
    pixels = np.stack([np.asarray(picture) for picture in pictures])
    scaled = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    return ((scaled - PIXEL_MEAN) / PIXEL_STD).contiguous()


def question_tokens(question: Question) -> list[int]:
    """Tokens of a question, the mark of the answer's turn, the answer and the end."""
    words = [*question.text.split(), ASSISTANT, question.answer, END]
    return [CLIP_WORD_IDS[word] for word in words]


def make_pack(
    questions: Sequence[Sequence[Question]], slots: int, positions: Tensor, places: int
) -> Pack:
    """Questions of several pictures as tokens, with the visual tokens they are asked behind.

    Parameters
    ----------
    questions
        Per picture.
    slots
        How many there can be about one.
    positions, places
        As `Pack` has them.
    """
    tokens = torch.full((len(questions), slots, LENGTH), CLIP_WORD_IDS[PAD])
    targets = torch.full_like(tokens, IGNORED)
    for picture, asked in enumerate(questions):
        for slot, question in enumerate(asked):
            ids = question_tokens(question)
            size = len(ids) - 1
            if size > LENGTH:
                raise InputError(f"{question.text!r} has {size} tokens; raise LENGTH={LENGTH}")
            tokens[picture, slot, :size] = torch.tensor(ids[:-1])
            targets[picture, slot, size - 2 : size] = torch.tensor(ids[-2:])
    return Pack(tokens, targets, positions, places)


def shown(is_thing: NDArray[np.bool_], seeds: Sequence[int], visual_tokens: int) -> Tensor:
    """Tokens the decoder is shown: all that are no ground, and some ground drawn by seed.

    Parameters
    ----------
    is_thing
        Tokens that are no ground, shape (pictures, tokens).
    seeds
        One for each picture.
    visual_tokens
        How many to show; all, when there are not more.

    Returns
    -------
    Tensor
        Their indices in ascending order, shape (pictures, shown).
    """
    places = is_thing.shape[1]
    if visual_tokens >= places:
        return torch.arange(places).expand(len(seeds), -1)
    rows = []
    for things, seed in zip(is_thing, seeds, strict=True):
        order = np.random.default_rng([seed, 0x5E7]).random(places) - things
        rows.append(np.sort(np.argsort(order)[:visual_tokens]))
    return torch.from_numpy(np.stack(rows))
