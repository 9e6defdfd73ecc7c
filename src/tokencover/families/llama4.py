"""Llama 4: squares of patches become one token, tile by tile, and blocks attend in chunks."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.layout import (
    Layout,
    Media,
    count_patches,
    grid,
    read_pixels,
    require_square,
)


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One square grid for each tile: the model is not told which tiles make one picture."""
    if media.images is None:
        return [], []
    values = read_pixels(media.images, "tiles channels height width", "pixel_values")
    side = require_square(*count_patches(media, *values.shape[-2:]))
    side = int(side * media.config.vision_config.pixel_shuffle_ratio)
    return [grid(1, side, side)] * len(values), []


FAMILY = Family(
    name="Llama 4",
    model_types=("llama4",),
    layouts=find_layouts,
    base="",
    decoder="language_model.model",
    towers=("vision_model",),
    projector="multi_modal_projector",
    windows=True,
    reads_attention=False,
    scales_by_place=True,
)
