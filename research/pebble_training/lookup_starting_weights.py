"""Weights that the look-up model starts training from, of which the model for videos grows.

Nothing here is needed to run a model. It saves the first half hour of training: the later decoder
blocks start with heads that match words of the question with words of a patch and copy what they
find, and the first blocks start almost as identity, so that look-ups do not settle there (see
`schedules`). The image model does without (see `picture_starting_weights`).
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from transformers import LlavaForConditionalGeneration

from research.pebble_training.patch_labels import SCENE_GROUPS
from research.pebble_training.starting_weights import (
    EARLY_BLOCKS,
    HEAD,
    draw_weights,
    prepare_vision,
)
from tokencover_models.pebble.model import CLIP_BLOCKS, MODEL_HEADS, MODEL_WIDTH, make_picture_model
from tokencover_models.pebble.vocabulary import (
    ANIMALS,
    ASSISTANT,
    COLOR_WORDS,
    COLUMN_WORDS,
    DIGITS,
    PICTURE_WORD_IDS,
    PICTURE_WORDS,
    PLURALS,
    REGIONS,
    ROW_WORDS,
    SHAPES,
)

WORD_STD: Final = 0.2
SLOW_PAIR: Final = 6
SEEN_AXIS: Final = 0
ASKING_AXIS: Final = 1
MATCH: Final = 6.0
PREFERENCE: Final = 8.0
TOLD: Final = 0.4
QUIET_SCALE: Final = 0.05
LOOKUP_BLOCKS: Final = (2,)
# Per head: words it matches between question and patch, words it then tells of the patch.
LOOKUPS: Final = (
    ((*COLOR_WORDS, *SHAPES), (*DIGITS, *REGIONS)),
    ((*SHAPES, *DIGITS), COLOR_WORDS),
    ((*COLOR_WORDS, *DIGITS), SHAPES),
    ((*ANIMALS, *REGIONS), (*ANIMALS, *COLOR_WORDS)),
)


def start_lookup_model(seed: int) -> LlavaForConditionalGeneration:
    """Make a model for images as deep as that for videos; the same weights for the same seed."""
    model = make_picture_model(CLIP_BLOCKS)
    set_starting_weights(model, seed)
    return model


@torch.no_grad()
def set_starting_weights(model: LlavaForConditionalGeneration, seed: int) -> None:
    """Overwrite the model's random weights with the starting weights, in place.

    Parameters
    ----------
    model
        What `make_picture_model` returns for as many blocks as the model for videos has.
    seed
        Same seed, same weights.
    """
    vision, rng = (torch.Generator().manual_seed(2 * seed + part) for part in range(2))
    decoder: Any = model.model.language_model
    words: Tensor = decoder.embed_tokens.weight
    words.copy_(_make_word_vectors(rng))
    for part, source in (
        (model.model.vision_tower, vision),
        (model.model.multi_modal_projector, vision),
        (decoder.layers, rng),
    ):
        draw_weights(part, source)
    prepare_vision(model.model.vision_tower)
    model.model.multi_modal_projector.linear_2.weight.mul_(0.3)
    for index, block in enumerate(decoder.layers):
        if index < EARLY_BLOCKS:
            block.self_attn.o_proj.weight.mul_(QUIET_SCALE)
            block.mlp.down_proj.weight.mul_(QUIET_SCALE)
        else:
            block.self_attn.q_proj.weight.mul_(0.1)
            block.self_attn.o_proj.weight.mul_(QUIET_SCALE)
            _prefer_picture(block.self_attn, PREFERENCE)
            if index in LOOKUP_BLOCKS:
                for head, (asked, told) in enumerate(LOOKUPS):
                    match_words(block.self_attn, head, words[_list_ids(asked)])
                    pass_words(block.self_attn, head, words[_list_ids(told)])
            block.mlp.down_proj.weight.mul_(QUIET_SCALE)
    # Word vectors are long; without this the first answers would be confident, wrong and loud.
    decoder.norm.weight.fill_(0.3)
    # The last word of a question must know the others before it can look anything up.
    gather = decoder.layers[EARLY_BLOCKS - 1].self_attn
    gather.q_proj.weight.mul_(0.02)
    _prefer_picture(gather, -PREFERENCE / 2)
    _copy(gather, 1.0, rng)


def _make_word_vectors(rng: torch.Generator) -> Tensor:
    """Vectors for all words.

    Words that describe patches are orthogonal, so that a sum of them can be read back; all other
    words share what room is left. Two axes are kept free: one for the words that every patch has,
    one for the word before an answer. A plural leans on its singular.
    """
    described = [PICTURE_WORD_IDS[word] for group in SCENE_GROUPS for word in group.words]
    length = WORD_STD * MODEL_WIDTH**0.5
    free = [axis for axis in range(MODEL_WIDTH) if axis not in (SEEN_AXIS, ASKING_AXIS)]
    basis = torch.zeros(len(free), MODEL_WIDTH)
    basis[:, free] = _make_orthogonal(len(free), rng)
    room = basis[len(described) :]
    mixes = torch.randn(len(PICTURE_WORDS), len(room), generator=rng)
    vectors: Tensor = length * torch.nn.functional.normalize(mixes @ room, dim=1)
    vectors[described] = length * basis[: len(described)]
    for singular, plural in PLURALS.items():
        both = vectors[PICTURE_WORD_IDS[singular]] + vectors[PICTURE_WORD_IDS[plural]]
        vectors[PICTURE_WORD_IDS[plural]] = 0.5**0.5 * both
    for word in (*ROW_WORDS, *COLUMN_WORDS):
        vectors[PICTURE_WORD_IDS[word], SEEN_AXIS] = 1.0
    vectors[PICTURE_WORD_IDS[ASSISTANT], ASKING_AXIS] = 2.0
    return vectors


def match_words(attention: Any, head: int, words: Tensor, start: int = 0) -> None:
    """Let a head find patches that share some of these words with the question.

    Each word gets a dimension of its own among those that rotary positions hardly turn, from the
    one numbered `start`.
    """
    rows = _list_slow_rows(head)[1 + start : 1 + start + len(words)]
    for name in ("q_proj", "k_proj"):
        getattr(attention, name).weight[rows] = MATCH * _make_readers(words)


def pass_words(attention: Any, head: int, words: Tensor, start: int = 0) -> None:
    """Let a head pass on these words of what it attends to, through dimensions from `start` on."""
    rows = [head * HEAD + start + index for index in range(len(words))]
    attention.v_proj.weight[rows] = _make_readers(words)
    attention.o_proj.weight[:, rows] = TOLD * words.T


def _make_readers(words: Tensor) -> Tensor:
    return words / words.square().sum(1, keepdim=True)


def _list_ids(words: tuple[str, ...]) -> list[int]:
    return [PICTURE_WORD_IDS[word] for word in words]


def _prefer_picture(attention: Any, strength: float) -> None:
    """Let the last word before an answer look at the image (or, below 0, away from it)."""
    for head in range(MODEL_HEADS):
        row = _list_slow_rows(head)[0]
        for name, axis, weight in (("q_proj", ASKING_AXIS, 1.0), ("k_proj", SEEN_AXIS, strength)):
            reader = torch.zeros(MODEL_WIDTH)
            reader[axis] = weight
            getattr(attention, name).weight[row] = reader


def _list_slow_rows(head: int) -> list[int]:
    slow = [*range(SLOW_PAIR, HEAD // 2), *range(HEAD // 2 + SLOW_PAIR, HEAD)]
    return [head * HEAD + dim for dim in slow]


def _copy(attention: Any, strength: float, rng: torch.Generator) -> None:
    whole = _make_orthogonal(MODEL_WIDTH, rng)
    attention.v_proj.weight.copy_(whole)
    attention.o_proj.weight.copy_(strength * whole.T)


def _make_orthogonal(size: int, rng: torch.Generator) -> Tensor:
    basis: Tensor = torch.linalg.qr(torch.randn(size, size, generator=rng)).Q
    return basis
