"""DeepSeek-OCR 2: learned queries read each view, so its tokens have no place in the picture."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.layout import (
    Layout,
    Media,
    add_newline,
    grid,
    join_views,
    read_pixels,
)

FEW, MANY = 144, 256
"""How many queries read a view, by how many tokens its first encoder gives; as in the model."""
STRIDE = 4
"""Two convolutions of stride 2 stand between patches and these tokens."""


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """A row of tokens for each view, those of tiles first, and a separator after them all.

    A column is the number of the query, not a place.
    """
    if media.images is None:
        return [], []
    axes = "views channels height width"
    whole = _count_queries(media, *read_pixels(media.images, axes, "pixel_values").shape[-2:])
    views = len(media.images["pixel_values"])
    if media.images.get("pixel_values_local") is None:
        return [add_newline(grid(1, 1, whole))] * views, []
    tile = _count_queries(media, *read_pixels(media.images, axes, "pixel_values_local").shape[-2:])
    counts = [int(count) for count in media.images["num_local_patches"]]
    return [_join(count, tile, whole) for count in counts], []


def _join(count: int, tile: int, whole: int) -> Layout:
    """The tiles of a picture, and all of it."""
    return add_newline(join_views(*[grid(1, 1, tile)] * count, grid(1, 1, whole)))


def _count_queries(media: Media, height: int, width: int) -> int:
    sam = media.config.vision_config.sam_config
    rows, columns = (-(-(side // sam.patch_size) // STRIDE) for side in (height, width))
    return FEW if rows * columns <= FEW else MANY


FAMILY = Family(
    name="DeepSeek-OCR 2",
    model_types=("deepseek_ocr2",),
    layouts=find_layouts,
)
