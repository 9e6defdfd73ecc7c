"""ERNIE 4.5 VL: any resolution, and experts of their own for visual tokens."""

from collections.abc import Sequence

import torch
from transformers import (
    Ernie4_5_VLMoeConfig,
    Ernie4_5_VLMoeForConditionalGeneration,
    PreTrainedModel,
)

from . import qwen2_vl, qwen_media
from .entry import Inputs, Medium, Recipe, Sample, ZooEntry, noise
from .layout import Grid, Layout
from .qwen_media import IMAGE_GRIDS, MERGE, merged
from .vision_encoders import PATCH
from .vocabulary import IMAGE, VIDEO, VISION_END, VISION_START, tagged_chat
from .weights import seeded, text_config

VALUES = 3 * PATCH * PATCH
VIDEO_GRIDS = ((4, 4, 6), (2, 6, 4))


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    text = text_config(
        layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        moe_intermediate_size=[16, 16],
        moe_k=2,
        moe_num_experts=4,
        moe_num_shared_experts=1,
        mlp_layer_types=["sparse"] * layers,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "mrope_section": [3, 3, 2]},
    )
    vision = {
        "depth": 2,
        "num_heads": 2,
        "hidden_size": 32,
        "intermediate_size": 48,
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "temporal_merge_size": 2,
    }
    config = Ernie4_5_VLMoeConfig(
        vision_config=vision,
        text_config=text,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        image_start_token_id=VISION_START,
        image_end_token_id=VISION_END,
        video_start_token_id=VISION_START,
        video_end_token_id=VISION_END,
        tie_word_embeddings=False,
    )
    return seeded(Ernie4_5_VLMoeForConditionalGeneration, config, attn_implementation, dtype)


def layout_of(size: Sequence[int], video: bool) -> Grid:
    """Two frames of a video become one."""
    grid = merged(size)
    return grid._replace(frames=grid.frames // 2) if video else grid


def media(recipe: Recipe) -> tuple[Medium, ...]:
    images = [
        _medium(10 * recipe.seed + index, IMAGE_GRIDS[shape], video=False)
        for index, shape in enumerate(recipe.images)
    ]
    videos = [_medium(100 * recipe.seed, VIDEO_GRIDS[shape], video=True) for shape in recipe.videos]
    return (*images, *videos)


def _medium(seed: int, size: tuple[int, int, int], video: bool) -> Medium:
    frames, rows, columns = size
    pixels = noise(seed, frames * rows * columns, VALUES)
    return Medium(pixels, layout_of(size, video), video=video, size=size)


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    """As for the Qwens, and which tokens go to the experts of images: the tags do too."""
    packed, ids = qwen_media.pack(samples, text), text["input_ids"]
    tags = (ids == VISION_START) | (ids == VISION_END)
    return {**packed, "moe_mm_token_type_ids": packed["mm_token_type_ids"] + tags.int()}


def layouts(inputs: Inputs) -> tuple[list[Layout], list[Layout]]:
    def read(name: str, video: bool) -> list[Layout]:
        grids = inputs[name].tolist() if name in inputs else []
        return [layout_of(grid, video) for grid in grids]

    return read("image_grid_thw", False), read("video_grid_thw", True)


ENTRY = ZooEntry(
    name="ernie4_5_vl_moe",
    build=build,
    chat=tagged_chat,
    write=qwen2_vl.write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=("single", "ragged", "text_only", "mixed", "image_and_video"),
    video_token_id=VIDEO,
    flash=False,
    alike="qwen2_vl",
)
