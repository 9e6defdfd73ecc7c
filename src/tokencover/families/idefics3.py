"""Idefics3: an image is cut into tiles and a last, global view; patches are folded."""

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

DECODER, PROJECTOR, TOWERS = "model.text_model", "model.connector", ("model.vision_model",)


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each crop, row by row of the batch; rows and columns count inside the crop.

    The model is not told which crops make one image, so each crop is an image of its own here.
    Crops that fill up a row of the batch are all zeros; the model leaves them out.
    """
    return lay_out_crops(media, least=0), []


def lay_out_crops(media: Media, least: int) -> list[Layout]:
    """The crops that are not all zeros, but no fewer than `least`."""
    sides = [patches // media.config.scale_factor for _, patches, _ in count_crops(media, least)]
    return [grid(1, side, side) for side in sides]


def count_crops(media: Media, least: int) -> list[Patches]:
    """The patches of each of these crops."""
    if media.images is None:
        return []
    values = read_pixels(media.images, "batch crops channels height width", "pixel_values")
    real = int(values.flatten(2).any(-1).sum())
    side = require_square(*count_patches(media, *values.shape[-2:]))
    return [(1, side, side)] * max(real, least)


def find_patches(media: Media) -> tuple[list[Patches], list[Patches]]:
    """The patches of each crop."""
    return count_crops(media, least=0), []


FAMILY = Family(
    name="Idefics3",
    model_types=("idefics3",),
    layouts=find_layouts,
    folding=SquareFolding(find_patches),
    decoder=DECODER,
    towers=TOWERS,
    projector=PROJECTOR,
)
