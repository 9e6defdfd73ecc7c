"""DeepSeek-VL: one SigLIP grid for each image."""

from __future__ import annotations

from tokencover.runtime.families.arguments import patch_grid, pixels
from tokencover.runtime.family import Family, Media
from tokencover.runtime.layout import Layout, grid


def layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each image, as large as its pixels."""
    if media.images is None:
        return [], []
    values = pixels(media.images, "images channels height width", "pixel_values")
    return [grid(1, *patch_grid(media, *values.shape[-2:]))] * len(values), []


FAMILY = Family(
    name="DeepSeek-VL",
    model_types=("deepseek_vl",),
    layouts=layouts,
    towers=("model.vision_model",),
    projector="model.aligner",
)
