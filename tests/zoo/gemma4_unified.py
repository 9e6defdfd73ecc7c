"""Gemma 4 without a vision encoder: each patch is a visual token."""

from dataclasses import replace
from functools import partial

import torch
from transformers import Gemma4UnifiedConfig, Gemma4UnifiedForConditionalGeneration, PreTrainedModel

from . import gemma4
from .entry import Inputs, Medium, Recipe
from .layout import Grid, Layout
from .qwen_media import MERGE, merged
from .raster_patches import media
from .vision_encoders import PATCH
from .vocabulary import IMAGE, VIDEO, VISION_END, VISION_START
from .weights import seeded, text_config
from .windows import WINDOW, choose_kinds

SIDE = MERGE * PATCH


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    text = text_config(
        layers,
        sliding_window=WINDOW,
        layer_types=choose_kinds(layers),
        global_head_dim=16,
        use_bidirectional_attention="vision",
    )
    vision = {
        "patch_size": PATCH,
        "pooling_kernel_size": MERGE,  # by the processor: the model gets patches of SIDE pixels
        "mm_embed_dim": 24,
        "mm_posemb_size": 16,
        "output_proj_dims": 24,
    }
    config = Gemma4UnifiedConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        boi_token_id=VISION_START,
        eoi_token_id=VISION_END,
        tie_word_embeddings=False,
    )
    model = seeded(Gemma4UnifiedForConditionalGeneration, config, attn_implementation, dtype)
    gemma4.shrink_queries(model)
    return model


def make_media(recipe: Recipe) -> tuple[Medium, ...]:
    return tuple(replace(each, size=merged(each.size)) for each in media(recipe))


def layouts(inputs: Inputs) -> tuple[list[Layout], list[Layout]]:
    places = inputs.get("image_position_ids", torch.empty(0, 0, 2))
    sizes = [(each.amax(0) + 1).tolist() for each in places]
    return [Grid(1, rows, columns) for columns, rows in sizes], []


ENTRY = replace(
    gemma4.ENTRY,
    name="gemma4_unified",
    build=build,
    media=make_media,
    pack=partial(gemma4.pack, side=SIDE),
    layouts=layouts,
)
