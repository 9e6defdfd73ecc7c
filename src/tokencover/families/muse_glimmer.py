"""Muse Glimmer and Spark: windows with rotations, and blocks without either that see all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokencover.families.family import Family
from tokencover.families.layout import Layout, Media, grid, read_rows, require


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each image and each video."""
    images = _read_grids(media, media.images, "image_grid_thw")
    return images, _read_grids(media, media.videos, "video_grid_thw")


def _read_grids(media: Media, arguments: Mapping[str, Any] | None, name: str) -> list[Layout]:
    if arguments is None:
        return []
    side: int = media.config.vision_config.merge_size
    patches = read_rows(require(arguments, name))
    return [grid(frames, rows // side, columns // side) for frames, rows, columns in patches]


FAMILY = Family(
    name="Muse",
    model_types=("muse_glimmer", "muse_spark"),
    needs={"muse_spark": "5.20"},
    layouts=find_layouts,
    projector="model.vision_projection",
    windows=True,
    reads_attention=False,
)
