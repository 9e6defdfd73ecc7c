"""Many questions about one image in one pass, while training.

An image's hundreds of tokens cost far more than a question's dozen, so an image is run once and
all its questions stand after it, each blind to the others. Every question gets exactly the states
it would get alone from the stock forward (a test holds this).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import LlavaForConditionalGeneration, VideoLlavaForConditionalGeneration
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from research.pebble_training.phrases import PHRASE_WORDS, Phrase
from research.pebble_training.starting_weights import EARLY_BLOCKS
from tokencover.errors import InputError
from tokencover_models.pebble.data import CLIP_TOKENS, Question
from tokencover_models.pebble.model import MODEL_HEADS, MODEL_WIDTH, VISION_FEATURE_LAYER
from tokencover_models.pebble.vocabulary import (
    ASSISTANT,
    BEGIN,
    CLIP_WORD_IDS,
    END,
    PAD,
    PICTURE_WORD_IDS,
    USER,
)

LEAD: Final = (PICTURE_WORD_IDS[BEGIN], PICTURE_WORD_IDS[USER])
LONGEST_QUESTION: Final = 15
PHRASE_START: Final = "the"
NO_TARGET: Final = -100


@dataclass(frozen=True)
class PackedQuestions:
    """Questions of a batch of images.

    Attributes
    ----------
    tokens
        Words of question and answer, shape (images, questions, length), padded on the right.
    targets
        Word to predict at each place or -100, same shape.
    positions
        Places of the visual tokens among all of the image's, shape (images, visual).
    places
        How many that are.
    """

    tokens: Tensor
    targets: Tensor
    positions: Tensor
    places: int


def pack_questions(
    questions: Sequence[Sequence[Question]], slots: int, positions: Tensor, places: int
) -> PackedQuestions:
    """Turn questions of several images into tokens, for the visual tokens they stand after.

    Parameters
    ----------
    questions
        Per image.
    slots
        How many there can be about one.
    positions, places
        As `PackedQuestions` has them.
    """
    tokens = torch.full((len(questions), slots, LONGEST_QUESTION), CLIP_WORD_IDS[PAD])
    targets = torch.full_like(tokens, NO_TARGET)
    for picture, asked in enumerate(questions):
        for slot, question in enumerate(asked):
            words = [*question.text.split(), ASSISTANT, question.answer, END]
            ids = [CLIP_WORD_IDS[word] for word in words]
            size = len(ids) - 1
            if size > LONGEST_QUESTION:
                raise InputError(
                    f"{question.text!r} has {size} tokens; raise LONGEST_QUESTION, which is "
                    f"{LONGEST_QUESTION}"
                )
            tokens[picture, slot, :size] = torch.tensor(ids[:-1])
            targets[picture, slot, size - 2 : size] = torch.tensor(ids[-2:])
    return PackedQuestions(tokens, targets, positions, places)


def pack_phrases(
    phrases: Sequence[Sequence[Phrase]], slots: int, positions: Tensor, places: int
) -> PackedQuestions:
    """Turn phrases about several images into tokens, each word a target of the one before.

    Parameters
    ----------
    phrases
        Per image; those beyond `slots` are left out.
    slots, positions, places
        As in `pack_questions`.
    """
    tokens = torch.full((len(phrases), slots, PHRASE_WORDS), CLIP_WORD_IDS[PAD])
    targets = torch.full_like(tokens, NO_TARGET)
    for picture, told in enumerate(phrases):
        for slot, phrase in enumerate(told[:slots]):
            ids = [CLIP_WORD_IDS[word] for word in (PHRASE_START, *phrase.words)]
            size = len(phrase.words)
            tokens[picture, slot, :size] = torch.tensor(ids[:-1])
            targets[picture, slot, :size] = torch.tensor(ids[1:])
    return PackedQuestions(tokens, targets, positions, places)


def encode_images(model: LlavaForConditionalGeneration, pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Visual tokens and the summary token's features, without the layers that nothing reads.

    Parameters
    ----------
    model
        Pebble.
    pixels
        Normalised images, shape (images, 3, 192, 192).

    Returns
    -------
    patches
        Shape (images, 576, width), what the stock model feeds its decoder.
    summary
        Shape (images, width).
    """
    projected = run_tower(model.model.vision_tower, model.model.multi_modal_projector, pixels)
    return projected[:, 1:], projected[:, 0]


def encode_videos(model: VideoLlavaForConditionalGeneration, pixels: Tensor) -> Tensor:
    """Visual tokens of videos, class tokens included, shape (videos, 1160, width).

    Parameters
    ----------
    model
        Pebble for videos.
    pixels
        Normalised frames, shape (videos, 8, 3, 96, 96).
    """
    parts = model.model
    each = run_tower(parts.video_tower, parts.multi_modal_projector, pixels.flatten(0, 1))
    return each.reshape(len(pixels), CLIP_TOKENS, -1)


def run_tower(tower: Any, projector: nn.Module, pixels: Tensor) -> Tensor:
    """What decoders are fed, class token first, shape (images, 1 + patches, width)."""
    states = tower.pre_layrnorm(tower.embeddings(pixels))
    for layer in tower.encoder.layers[: VISION_FEATURE_LAYER + 1]:
        states = layer(states, None)
    projected: Tensor = projector(states)
    return projected


def answer_questions(
    model: Any, visual: Tensor, pack: PackedQuestions, early_sight: bool
) -> Tensor:
    """Run the decoder over images with all their questions.

    Parameters
    ----------
    model
        Pebble, for images or for videos.
    visual
        Visual tokens, shape (images, visual, width).
    pack
        The questions.
    early_sight
        Whether text may attend to the image in the first two blocks.

    Returns
    -------
    Tensor
        Logits at every place of every question, shape (images, questions, length, words).
    """
    return answer_packs(model, visual, [pack], early_sight)[0]


def answer_packs(
    model: Any, visual: Tensor, packs: Sequence[PackedQuestions], early_sight: bool
) -> list[Tensor]:
    """Run the decoder once over images with several packs of texts.

    Parameters
    ----------
    model, visual, early_sight
        As in `answer_questions`.
    packs
        Texts about the same visual tokens of the same images.

    Returns
    -------
    list of Tensor
        Logits of each pack, shape (images, questions, length, words).
    """
    decoder: Any = model.model.language_model
    lead = decoder.embed_tokens(torch.tensor(LEAD)).expand(len(visual), -1, -1)
    text = decoder.embed_tokens(torch.cat([pack.tokens.flatten(1) for pack in packs], dim=1))
    states = torch.cat([lead, visual, text], dim=1)
    shared = lead.shape[1] + visual.shape[1]
    angles = decoder.rotary_emb(states, position_ids=_make_position_ids(packs))
    blind, seeing = _make_masks(packs, shared)
    last = len(decoder.layers) - 1
    for index, block in enumerate(decoder.layers):
        mask = seeing if early_sight or index >= EARLY_BLOCKS else blind
        states = _run_block(block, states, angles, mask, only_text=index == last)
    logits: Tensor = model.lm_head(decoder.norm(states))
    parts = logits.split([pack.tokens[0].numel() for pack in packs], dim=1)
    return [part.reshape(*pack.tokens.shape, -1) for part, pack in zip(parts, packs, strict=True)]


def _make_position_ids(packs: Sequence[PackedQuestions]) -> Tensor:
    pictures = len(packs[0].tokens)
    lead = torch.arange(len(LEAD)).expand(pictures, -1)
    parts = [lead, len(LEAD) + packs[0].positions]
    for pack in packs:
        _, questions, length = pack.tokens.shape
        after = len(LEAD) + pack.places + torch.arange(length).repeat(questions)
        parts.append(after.expand(pictures, -1))
    return torch.cat(parts, dim=1)


def _make_masks(packs: Sequence[PackedQuestions], shared: int) -> tuple[Tensor, Tensor]:
    """Rows of text over all columns: without and with sight of the image."""
    squares = []
    for pack in packs:
        _, questions, length = pack.tokens.shape
        squares += [torch.ones(length, length).tril()] * questions
    own = torch.block_diag(*squares).bool()
    sight = torch.ones(len(own), shared, dtype=torch.bool)
    lead_only = sight.clone()
    lead_only[:, len(LEAD) :] = False
    return torch.cat([lead_only, own], dim=1), torch.cat([sight, own], dim=1)


def _run_block(
    block: Any, states: Tensor, angles: tuple[Tensor, Tensor], mask: Tensor, *, only_text: bool
) -> Tensor:
    """One decoder layer; the image is causal by itself, the mask is for the rows of text."""
    attention = block.self_attn
    normed: Tensor = block.input_layernorm(states)
    batch, length, _ = normed.shape
    shared = length - mask.shape[0]

    def split_heads(projection: nn.Module) -> Tensor:
        projected: Tensor = projection(normed)
        return projected.view(batch, length, MODEL_HEADS, -1).transpose(1, 2)

    query, key = split_heads(attention.q_proj), split_heads(attention.k_proj)
    query, key = apply_rotary_pos_emb(query, key, *angles)
    value = split_heads(attention.v_proj)
    parts = [scaled_dot_product_attention(query[:, :, shared:], key, value, attn_mask=mask)]
    if only_text:
        states = states[:, shared:]
    else:
        query, key, value = (tensor[:, :, :shared] for tensor in (query, key, value))
        parts.insert(0, scaled_dot_product_attention(query, key, value, is_causal=True))
    mixed = torch.cat(parts, dim=2).transpose(1, 2).reshape(batch, -1, MODEL_WIDTH)
    states = states + attention.o_proj(mixed)
    inner: Tensor = block.mlp(block.post_attention_layernorm(states))
    return states + inner
