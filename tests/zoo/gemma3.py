"""Gemma 3: sliding windows in three of five blocks, and tokens of an image that see each other."""

from dataclasses import replace

import torch
from transformers import Gemma3Config, Gemma3ForConditionalGeneration, PreTrainedModel

from .entry import Inputs
from .single_grids import single_grids
from .vision_encoders import PATCH, siglip_encoder
from .vocabulary import IMAGE, VISION_END, VISION_START
from .weights import seeded, text_config
from .windows import WINDOW, choose_kinds

SIDE = 4


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    text = text_config(
        layers,
        sliding_window=WINDOW,
        layer_types=choose_kinds(layers),
        query_pre_attn_scalar=8,
    )
    config = Gemma3Config(
        vision_config=siglip_encoder(2 * SIDE),
        text_config=text,
        image_token_index=IMAGE,
        boi_token_index=VISION_START,
        eoi_token_index=VISION_END,
        mm_tokens_per_image=SIDE * SIDE,
        tie_word_embeddings=False,
    )
    return seeded(Gemma3ForConditionalGeneration, config, attn_implementation, dtype)


def mark_images(inputs: Inputs) -> Inputs:
    """What its processor says beside the ids: 1 for the tokens of an image."""
    return {"token_type_ids": (inputs["input_ids"] == IMAGE).long()}


_GRIDS = single_grids("gemma3", build, SIDE, 2 * PATCH)
ENTRY = replace(
    _GRIDS,
    pack=lambda samples, text: {**_GRIDS.pack(samples, text), **mark_images(text)},
    alike=None,
    flash=False,
    own_masks=True,
)
