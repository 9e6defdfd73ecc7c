"""Pictures of any size as rows of patches beside a grid of (frames, rows, columns) each.

The Qwen-VLs share it: a square of patches becomes one token, and tokens come in raster order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokencover.runtime.families.arguments import required, rows_of_integers
from tokencover.runtime.family import Media
from tokencover.runtime.layout import Layout, grid


def layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each image and each video."""
    images = _merged(media, media.images, "image_grid_thw")
    return images, _merged(media, media.videos, "video_grid_thw")


def _merged(media: Media, arguments: Mapping[str, Any] | None, name: str) -> list[Layout]:
    if arguments is None:
        return []
    side: int = media.config.vision_config.spatial_merge_size
    patches = rows_of_integers(required(arguments, name))
    return [grid(frames, rows // side, columns // side) for frames, rows, columns in patches]
