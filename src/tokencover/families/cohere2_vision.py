"""Command A Vision and Aya Vision: squares of patches are folded into one token, crop by crop."""

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
    """One square grid for each crop: the model is not told which crops make one picture."""
    if media.images is None:
        return [], []
    values = read_pixels(media.images, "crops channels height width", "pixel_values")
    side = require_square(*count_patches(media, *values.shape[-2:]))
    side //= media.config.downsample_factor
    return [grid(1, side, side)] * len(values), []


FAMILY = Family(
    name="Cohere Vision",
    model_types=("cohere2_vision", "aya_vision"),
    layouts=find_layouts,
    windows=True,
)
