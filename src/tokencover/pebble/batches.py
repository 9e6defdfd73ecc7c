"""Training batches, made on the fly from seeds: nothing is stored and nothing repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from tokencover.errors import InputError
from tokencover.pebble.describing import GROUP_INDEX, NONE, describe, mixing_weights
from tokencover.pebble.drawing import draw
from tokencover.pebble.model import VISUAL_TOKENS
from tokencover.pebble.packing import Pack
from tokencover.pebble.questions import Question, ask
from tokencover.pebble.scene import Scene, make_scene
from tokencover.pebble.vocabulary import ASSISTANT, END, PAD, WORD_IDS

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
    tokens, targets = _tokens(questions, len(kinds))
    return Batch(
        pixels=pixels_of(scenes),
        labels=torch.from_numpy(labels),
        weights=torch.from_numpy(mixing_weights(labels)),
        questions=questions,
        pack=Pack(tokens, targets, _positions(labels, seeds, visual_tokens)),
    )


def pixels_of(scenes: Sequence[Scene]) -> Tensor:
    """Draw scenes and normalise them as the processor does, shape (scenes, 3, 192, 192)."""
    pictures = np.stack([np.asarray(draw(scene)) for scene in scenes])
    scaled = torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 255
    return ((scaled - PIXEL_MEAN) / PIXEL_STD).contiguous()


def question_tokens(question: Question) -> list[int]:
    """Tokens of a question, the mark of the answer's turn, the answer and the end."""
    words = [*question.text.split(), ASSISTANT, question.answer, END]
    return [WORD_IDS[word] for word in words]


def _tokens(questions: list[list[Question]], slots: int) -> tuple[Tensor, Tensor]:
    tokens = torch.full((len(questions), slots, LENGTH), WORD_IDS[PAD])
    targets = torch.full_like(tokens, IGNORED)
    for picture, asked in enumerate(questions):
        for slot, question in enumerate(asked):
            ids = question_tokens(question)
            size = len(ids) - 1
            if size > LENGTH:
                raise InputError(f"{question.text!r} has {size} tokens; raise LENGTH={LENGTH}")
            tokens[picture, slot, :size] = torch.tensor(ids[:-1])
            targets[picture, slot, size - 2 : size] = torch.tensor(ids[-2:])
    return tokens, targets


def _positions(labels: np.ndarray, seeds: Sequence[int], visual_tokens: int) -> Tensor:
    if visual_tokens >= VISUAL_TOKENS:
        return torch.arange(VISUAL_TOKENS).expand(len(seeds), -1)
    is_thing = labels[..., GROUP_INDEX["stuff"]] == NONE
    rows = []
    for things, seed in zip(is_thing, seeds, strict=True):
        order = np.random.default_rng([seed, 0x5E7]).random(VISUAL_TOKENS) - things
        rows.append(np.sort(np.argsort(order)[:visual_tokens]))
    return torch.from_numpy(np.stack(rows))
