"""PaliGemma: one grid for each picture; all tokens of the prompt see each other."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.layout import Layout, Media, count_patches, grid, read_pixels


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each image, as large as its pixels."""
    if media.images is None:
        return [], []
    values = read_pixels(media.images, "images channels height width", "pixel_values")
    return [grid(1, *count_patches(media, *values.shape[-2:]))] * len(values), []


FAMILY = Family(
    name="PaliGemma",
    model_types=("paligemma",),
    layouts=find_layouts,
    windows=True,
    both_directions=True,
)
