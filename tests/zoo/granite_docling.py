"""Granite Docling: Idefics3's tiles, with a mask of tiles and features for the first layers."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from transformers import (
    GraniteDoclingConfig,
    GraniteDoclingForConditionalGeneration,
    PreTrainedModel,
)

from . import idefics3
from .entry import Inputs, Sample
from .idefics3 import SIDE
from .vision_encoders import siglip_encoder
from .vocabulary import IMAGE, PAD, tagged_chat
from .weights import HIDDEN, seeded, text_config


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    vision = siglip_encoder(2 * SIDE, "granite_docling_vision")
    config = GraniteDoclingConfig(
        vision_config={
            **vision,
            "num_hidden_layers": 3,
            "out_hidden_size": HIDDEN,
            "scale_factor": 2,
            "deepstack_visual_indexes": [0, 1],
        },
        text_config=text_config(
            layers,
            model_type="granite_docling_text",
            attention_multiplier=0.4,
            embedding_multiplier=1.5,
            residual_multiplier=0.8,
            logits_scaling=1.0,
        ),
        image_token_id=IMAGE,
        pad_token_id=PAD,
        tie_word_embeddings=False,
    )
    return seeded(GraniteDoclingForConditionalGeneration, config, attn_implementation, dtype)


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    """Say of each tile whether it is real, not of each pixel."""
    packed = idefics3.pack(samples, text)
    if packed:
        packed["pixel_attention_mask"] = packed["pixel_attention_mask"].flatten(2).any(-1)
    return packed


ENTRY = replace(
    idefics3.ENTRY,
    name="granite_docling",
    build=build,
    chat=tagged_chat,
    pack=pack,
    deepstack=True,
)
