"""Aria: learned queries read each crop, so its tokens have no place in the picture."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.layout import Layout, Media, count_patches, grid, read_pixels


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One row of tokens for each crop: a column is the number of the query, not a place."""
    if media.images is None:
        return [], []
    values = read_pixels(media.images, "crops channels height width", "pixel_values")
    rows, columns = count_patches(media, *values.shape[-2:])
    queries: int = media.config.projector_patch_to_query_dict[rows * columns]
    return [grid(1, 1, queries)] * len(values), []


FAMILY = Family(
    name="Aria",
    model_types=("aria",),
    layouts=find_layouts,
    needs={"aria": "5.20"},
)
