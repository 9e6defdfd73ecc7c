"""LLaVA-Next-Video: LLaVA-Next's images, and pooled frames of videos."""

from collections.abc import Sequence

import torch
from transformers import (
    LlavaNextVideoConfig,
    LlavaNextVideoForConditionalGeneration,
    PreTrainedModel,
)

from . import llava_next
from .anyres import BASE, PINPOINTS, SIDE, VIEW, stack_images
from .entry import Inputs, Medium, Recipe, Sample, ZooEntry, noise
from .layout import Grid, Layout
from .vision_encoders import PATCH, clip_encoder
from .vocabulary import IMAGE, LINE, VIDEO, Ids, plain_chat
from .weights import seeded, text_config

POOL = 2
FRAMES = 4
CLIP = Grid(FRAMES, SIDE // POOL, SIDE // POOL)


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    config = LlavaNextVideoConfig(
        vision_config=clip_encoder(SIDE),
        text_config=text_config(layers, model_type="llama"),
        image_token_index=IMAGE,
        video_token_index=VIDEO,
        image_grid_pinpoints=PINPOINTS,
        image_seq_length=BASE.tokens,
        spatial_pool_stride=POOL,
    )
    return seeded(LlavaNextVideoForConditionalGeneration, config, attn_implementation, dtype)


def media(recipe: Recipe) -> tuple[Medium, ...]:
    clips = [_clip(100 * recipe.seed) for _ in recipe.videos]
    return (*llava_next.media(recipe), *clips)


def _clip(seed: int) -> Medium:
    pixels = noise(seed, FRAMES, 3, VIEW, VIEW)
    return Medium(pixels, CLIP, video=True, token_side=POOL * PATCH)


def write(medium: Medium) -> Ids:
    token = VIDEO if medium.video else IMAGE
    return [token] * medium.layout.tokens + [LINE]


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    every = [medium for sample in samples for medium in sample.media]
    packed = stack_images([medium for medium in every if not medium.video])
    clips = [medium.pixels for medium in every if medium.video]
    return {**packed, **({"pixel_values_videos": torch.stack(clips)} if clips else {})}


def layouts(inputs: Inputs) -> tuple[list[Layout], list[Layout]]:
    clips = len(inputs["pixel_values_videos"]) if "pixel_values_videos" in inputs else 0
    return llava_next.layouts(inputs)[0], [CLIP] * clips


ENTRY = ZooEntry(
    name="llava_next_video",
    build=build,
    chat=plain_chat,
    write=write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=("single", "ragged", "text_only", "mixed", "image_and_video"),
    video_token_id=VIDEO,
    alike="llava_next",
)
