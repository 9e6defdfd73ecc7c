"""FastVLM: a convolutional tower makes one grid of each image."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.layout import Layout, Media, grid, read_pixels

STRIDE = 64
"""Of the FastViT-HD towers. The configuration does not tell it."""


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each image, as large as its pixels."""
    if media.images is None:
        return [], []
    values = read_pixels(media.images, "images channels height width", "pixel_values")
    rows, columns = (-(-length // STRIDE) for length in values.shape[-2:])
    return [grid(1, rows, columns)] * len(values), []


FAMILY = Family(name="FastVLM", model_types=("fast_vlm",), layouts=find_layouts)
