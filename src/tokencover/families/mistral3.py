"""Mistral 3: images of any size, a square of patches becomes one token."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.folding import Patches, SquareFolding
from tokencover.families.layout import (
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
    patches, _ = find_patches(media)
    return [grid(1, rows // side, columns // side) for _, rows, columns in patches], []


def find_patches(media: Media) -> tuple[list[Patches], list[Patches]]:
    """The patches of each image."""
    if media.images is None:
        return [], []
    sizes = read_rows(require(media.images, "image_sizes"))
    return [(1, *count_patches(media, *size)) for size in sizes], []


FOLDING = SquareFolding(find_patches)

FAMILY = Family(name="Mistral 3", model_types=("mistral3",), layouts=find_layouts, folding=FOLDING)
