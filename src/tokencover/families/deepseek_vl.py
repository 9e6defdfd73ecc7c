"""DeepSeek-VL: one SigLIP grid for each image."""

from __future__ import annotations

from torch import Tensor, nn

from tokencover.families.family import Family
from tokencover.families.layout import Layout, Media, count_patches, grid, read_pixels


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each image, as large as its pixels."""
    if media.images is None:
        return [], []
    values = read_pixels(media.images, "images channels height width", "pixel_values")
    return [grid(1, *count_patches(media, *values.shape[-2:]))] * len(values), []


def carry_tower_tokens(
    base: nn.Module, media: Media, images: Tensor | None, videos: Tensor | None
) -> tuple[list[Tensor], list[Tensor]]:
    """The tokens of each image in order."""
    return [] if images is None else list(images), []


FAMILY = Family(
    name="DeepSeek-VL",
    model_types=("deepseek_vl",),
    layouts=find_layouts,
    towers=("model.vision_model",),
    projector="model.aligner",
    tower_tokens=carry_tower_tokens,
)
