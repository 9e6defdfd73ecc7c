"""LLaVA-OneVision: tiles for a single image, base views for several, pooled frames for video."""

from collections.abc import Iterable, Sequence
from math import ceil, sqrt

import torch
from torch import Tensor
from transformers import (
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    PreTrainedModel,
)

from .anyres import BASE, PINPOINTS, SIDE, VIEW, image, stack_images, unpadded
from .entry import Inputs, Medium, Recipe, Sample, ZooEntry, noise
from .layout import Grid, Layout, Tiled
from .vision_encoders import PATCH, siglip_encoder
from .vocabulary import IMAGE, LINE, VIDEO, Ids, tagged_chat
from .weights import seeded, text_config

SIZES = ((12, 24), (24, 24), (11, 12))
MAX_TILES = 3
POOLED = ceil(SIDE / 2)
FRAMES = 3


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    config = LlavaOnevisionConfig(
        vision_config={**siglip_encoder(SIDE), "vision_use_head": False},
        text_config=text_config(layers, model_type="qwen2"),
        image_token_index=IMAGE,
        video_token_index=VIDEO,
        image_grid_pinpoints=PINPOINTS,
        vision_aspect_ratio=f"anyres_max_{MAX_TILES}",
    )
    return seeded(LlavaOnevisionForConditionalGeneration, config, attn_implementation, dtype)


def layout_of(size: tuple[int, ...], alone: bool) -> Tiled:
    """Only an image that is alone in its prompt is tiled; many tiles are scaled down."""
    if not alone:
        return Tiled(BASE, None)
    _, rows, columns = unpadded(size)
    ratio = sqrt(rows * columns / (MAX_TILES * BASE.tokens))
    if ratio > 1.1:
        rows, columns = int(rows // ratio), int(columns // ratio)
    return Tiled(BASE, Grid(1, rows, columns))


def media(recipe: Recipe) -> tuple[Medium, ...]:
    alone = len(recipe.images) == 1
    images = [
        image(10 * recipe.seed + index, SIZES[shape], layout_of(SIZES[shape], alone))
        for index, shape in enumerate(recipe.images)
    ]
    return (*images, *(_video(100 * recipe.seed + index) for index in recipe.videos))


def _video(seed: int) -> Medium:
    layout = Tiled(Grid(FRAMES, POOLED, POOLED), None)
    return Medium(noise(seed, FRAMES, 3, VIEW, VIEW), layout, video=True, token_side=2 * PATCH)


def write(medium: Medium) -> Ids:
    return [VIDEO if medium.video else IMAGE] * medium.layout.tokens + [LINE]


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    all_media = [medium for sample in samples for medium in sample.media]
    packed = stack_images([medium for medium in all_media if not medium.video])
    if packed:
        counts = [sum(not medium.video for medium in sample.media) for sample in samples]
        packed["batch_num_images"] = torch.tensor([count for count in counts if count])
    videos = [medium.pixels for medium in all_media if medium.video]
    return {**packed, **({"pixel_values_videos": torch.stack(videos)} if videos else {})}


def layouts(inputs: Inputs) -> tuple[list[Layout], list[Layout]]:
    images: list[Layout] = []
    if "image_sizes" in inputs:
        counts = inputs["batch_num_images"].tolist()
        alone = [count == 1 for count in counts for _ in range(count)]
        sizes = inputs["image_sizes"].tolist()
        images = [layout_of(size, only) for size, only in zip(sizes, alone, strict=True)]
    videos: Iterable[Tensor] = inputs.get("pixel_values_videos", ())
    return images, [Tiled(Grid(len(video), POOLED, POOLED), None) for video in videos]


ENTRY = ZooEntry(
    name="llava_onevision",
    build=build,
    chat=tagged_chat,
    write=write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=("single", "ragged", "two_images", "text_only", "mixed", "video", "image_and_video"),
    video_token_id=VIDEO,
)
