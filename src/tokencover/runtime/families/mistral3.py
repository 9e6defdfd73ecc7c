"""Mistral 3: images of any size, a square of patches becomes one token."""

from __future__ import annotations

from tokencover.runtime.families.family import Family
from tokencover.runtime.families.layout import (
    Layout,
    Media,
    count_patches,
    grid,
    read_rows,
    require,
)


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each image; what ends its rows in the prompt are text tokens."""
    if media.images is None:
        return [], []
    side: int = media.config.spatial_merge_size
    sizes = read_rows(require(media.images, "image_sizes"))
    patches = [count_patches(media, *size) for size in sizes]
    return [grid(1, rows // side, columns // side) for rows, columns in patches], []


FAMILY = Family(name="Mistral 3", model_types=("mistral3",), layouts=find_layouts)
