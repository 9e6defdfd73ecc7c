"""InternVL, and Qianfan-OCR which is built like it: crops, whose patches are folded.

A video is frames, each an image.
"""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.folding import Patches, SquareFolding
from tokencover.families.layout import (
    Layout,
    Media,
    count_patches,
    grid,
    read_pixels,
    require_square,
)


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each crop, in order; rows and columns count inside the crop.

    The model is not told which crops make one image, so each crop is an image of its own here.
    """
    if media.images is None:
        return [], []
    crops, _ = find_patches(media)
    sides = [int(patches * media.config.downsample_ratio) for _, patches, _ in crops]
    return [grid(1, side, side) for side in sides], []


def find_patches(media: Media) -> tuple[list[Patches], list[Patches]]:
    """The patches of each crop."""
    if media.images is None:
        return [], []
    values = read_pixels(media.images, "crops channels height width", "pixel_values")
    side = require_square(*count_patches(media, *values.shape[-2:]))
    return [(1, side, side)] * len(values), []


FAMILY = Family(
    name="InternVL",
    model_types=("internvl", "qianfan_ocr"),
    layouts=find_layouts,
    folding=SquareFolding(find_patches),
    merges_squares=True,
    class_token=True,
)
