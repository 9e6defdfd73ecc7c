"""Idefics3: an image is cut into tiles and a last, global view; patches are folded."""

from __future__ import annotations

from tokencover.runtime.families.arguments import patch_grid, pixels, square_side
from tokencover.runtime.family import Family, Media
from tokencover.runtime.layout import Layout, grid

DECODER, PROJECTOR, TOWERS = "model.text_model", "model.connector", ("model.vision_model",)


def layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each crop, row by row of the batch; rows and columns count inside the crop.

    The model is not told which crops make one image, so each crop is an image of its own here.
    Crops that fill up a row of the batch are all zeros; the model leaves them out.
    """
    return crop_layouts(media, least=0), []


def crop_layouts(media: Media, least: int) -> list[Layout]:
    """The crops that are not all zeros, but no fewer than `least`."""
    if media.images is None:
        return []
    values = pixels(media.images, "batch crops channels height width", "pixel_values")
    real = int(values.flatten(2).any(-1).sum())
    patches = square_side(*patch_grid(media, *values.shape[-2:]))
    side = patches // media.config.scale_factor
    return [grid(1, side, side)] * max(real, least)


FAMILY = Family(
    name="Idefics3",
    model_types=("idefics3",),
    layouts=layouts,
    decoder=DECODER,
    towers=TOWERS,
    projector=PROJECTOR,
)
