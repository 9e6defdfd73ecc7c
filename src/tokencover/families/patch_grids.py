"""Pictures of any size as rows of patches beside a grid of (frames, rows, columns) each.

The Qwen-VLs share it: a square of patches becomes one token, and tokens come in raster order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokencover.families.folding import Patches, SquareFolding
from tokencover.families.layout import Layout, Media, grid, read_rows, require


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each image and each video."""
    images = _read_grids(media, media.images, "image_grid_thw")
    return images, _read_grids(media, media.videos, "video_grid_thw")


def find_patches(media: Media) -> tuple[list[Patches], list[Patches]]:
    """The patches of each image and each video."""
    images = _read_patches(media.images, "image_grid_thw")
    return images, _read_patches(media.videos, "video_grid_thw")


def _read_patches(arguments: Mapping[str, Any] | None, name: str) -> list[Patches]:
    if arguments is None:
        return []
    rows = read_rows(require(arguments, name))
    return [(frames, tall, wide) for frames, tall, wide in rows]


FOLDING = SquareFolding(find_patches, in_squares=True)


def _read_grids(media: Media, arguments: Mapping[str, Any] | None, name: str) -> list[Layout]:
    side: int = media.config.vision_config.spatial_merge_size
    patches = _read_patches(arguments, name)
    return [grid(frames, rows // side, columns // side) for frames, rows, columns in patches]
