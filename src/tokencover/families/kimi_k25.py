"""Kimi K2.5: any resolution; the frames of a clip are averaged to one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokencover.families.family import Family
from tokencover.families.folding import SquareFolding
from tokencover.families.layout import Layout, Media, grid, read_rows, require
from tokencover.families.patch_grids import find_patches


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each image and each clip of a video."""
    images = _read_grids(media, media.images, "image_grid_thw")
    return images, _read_grids(media, media.videos, "video_grid_thw")


def _read_grids(media: Media, arguments: Mapping[str, Any] | None, name: str) -> list[Layout]:
    if arguments is None:
        return []
    tall, wide = media.config.vision_config.merge_kernel_size
    patches = read_rows(require(arguments, name))
    return [grid(1, rows // tall, columns // wide) for _, rows, columns in patches]


FAMILY = Family(
    name="Kimi K2.5",
    model_types=("kimi_k25",),
    layouts=find_layouts,
    folding=SquareFolding(find_patches),
    projector="model.mm_projector",
    reads_attention=False,
)
