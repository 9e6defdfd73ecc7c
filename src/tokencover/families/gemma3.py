"""Gemma 3: one pooled grid for each picture or crop, whose tokens see each other."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.layout import Layout, Media, grid, read_pixels


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One square grid for each image; crops of a picture (pan and scan) are images of their own."""
    if media.images is None:
        return [], []
    values = read_pixels(media.images, "images channels height width", "pixel_values")
    side = int(media.config.mm_tokens_per_image**0.5)
    return [grid(1, side, side)] * len(values), []


FAMILY = Family(
    name="Gemma 3",
    model_types=("gemma3",),
    layouts=find_layouts,
    windows=True,
    both_directions=True,
)
