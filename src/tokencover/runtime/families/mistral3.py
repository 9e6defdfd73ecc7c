"""Mistral 3: images of any size, a square of patches becomes one token."""

from __future__ import annotations

from tokencover.runtime.families.arguments import patch_grid, required, rows_of_integers
from tokencover.runtime.family import Family, Media
from tokencover.runtime.layout import Layout, grid


def layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each image; what ends its rows in the prompt are text tokens."""
    if media.images is None:
        return [], []
    side: int = media.config.spatial_merge_size
    sizes = rows_of_integers(required(media.images, "image_sizes"))
    patches = [patch_grid(media, *size) for size in sizes]
    return [grid(1, rows // side, columns // side) for rows, columns in patches], []


FAMILY = Family(name="Mistral 3", model_types=("mistral3",), layouts=layouts)
