"""Cosmos 3 Edge: the Qwens' images before a decoder of its own."""

from dataclasses import replace

import torch
from transformers import Cosmos3EdgeConfig, Cosmos3EdgeForConditionalGeneration, PreTrainedModel

from . import qwen3_vl, qwen_media
from .entry import Medium, Recipe
from .qwen_media import MERGE
from .vision_encoders import PATCH
from .vocabulary import IMAGE, VIDEO, VISION_END, VISION_START
from .weights import seeded, text_config

VALUES = 3 * PATCH * PATCH


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    text = text_config(layers, num_attention_heads=2, num_key_value_heads=1, head_dim=16)
    text["rope_parameters"] = {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "mrope_section": [4, 2, 2],
    }
    vision = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "patch_size": PATCH,
        "num_patches": 36,
        "spatial_merge_size": MERGE,
    }
    config = Cosmos3EdgeConfig(
        vision_config=vision,
        text_config=text,
        projector_hidden_size=48,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=VISION_START,
        vision_end_token_id=VISION_END,
    )
    return seeded(Cosmos3EdgeForConditionalGeneration, config, attn_implementation, dtype)


def media(recipe: Recipe) -> tuple[Medium, ...]:
    """Give the Qwens' images, but patches of one frame each."""
    wide = qwen_media.media(recipe)
    return tuple(replace(medium, pixels=medium.pixels[:, :VALUES]) for medium in wide)


ENTRY = replace(
    qwen3_vl.ENTRY,
    name="cosmos3_edge",
    build=build,
    media=media,
    kinds=("single", "ragged", "text_only", "mixed", "image_and_video"),
    deepstack=False,
    flash=False,
    alike="qwen2_vl",
)
