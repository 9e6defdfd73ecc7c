"""HunYuan VL: positions of four axes, newlines, and a first and last token of each image.

One axis numbers the images of the whole batch, so that only the first of a batch has the
positions that it has alone; batches of one image are all that can equal their single runs.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from transformers import HunYuanVLConfig, HunYuanVLForConditionalGeneration, PreTrainedModel

from . import raster_patches
from .entry import Inputs, Medium, Recipe, Sample, ZooEntry
from .layout import Enclosed, Layout
from .qwen_media import MERGE, merged
from .raster_patches import cut
from .single_grids import write
from .vision_encoders import PATCH
from .vocabulary import IMAGE, tagged_chat
from .weights import HIDDEN, seeded, text_config


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    text = text_config(layers, num_attention_heads=2, num_key_value_heads=1, head_dim=16)
    text["rope_parameters"] = {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "mrope_section": [2, 2, 2, 2],
    }
    vision = {
        "hidden_size": 24,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "max_image_size": 10 * PATCH,
        "out_hidden_size": HIDDEN,
        "text_hidden_size": HIDDEN,
    }
    config = HunYuanVLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=IMAGE,
        tie_word_embeddings=False,
    )
    return seeded(HunYuanVLForConditionalGeneration, config, attn_implementation, dtype)


def media(recipe: Recipe) -> tuple[Medium, ...]:
    images = raster_patches.media(recipe)
    return tuple(replace(each, layout=Enclosed(merged(each.size))) for each in images)


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    packed = raster_patches.pack(samples, text)
    images = [medium for sample in samples for medium in sample.media]
    if images:
        packed["pixel_values"] = torch.cat([cut(each.pixels).flatten(1) for each in images])
    return packed


def layouts(inputs: Inputs) -> tuple[list[Layout], list[Layout]]:
    grids = inputs["image_grid_thw"].tolist() if "image_grid_thw" in inputs else []
    return [Enclosed(merged(grid)) for grid in grids], []


ENTRY = ZooEntry(
    name="hunyuan_vl",
    build=build,
    chat=tagged_chat,
    write=write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=("single", "ragged", "two_images", "text_only", "mixed"),
    counts_images=True,
    alike="qwen2_vl",
)
