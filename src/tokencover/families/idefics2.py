"""Idefics2: a resampler reads each crop, so its tokens have no place in the picture."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.idefics3 import DECODER, PROJECTOR, TOWERS
from tokencover.families.layout import Layout, Media, grid, read_pixels


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One row of tokens for each crop: a column is the number of the latent, not a place.

    Crops that fill up a row of the batch are all zeros; the model leaves them out.
    """
    if media.images is None:
        return [], []
    values = read_pixels(media.images, "batch crops channels height width", "pixel_values")
    real = int(values.flatten(2).any(-1).sum())
    return [grid(1, 1, media.config.perceiver_config.resampler_n_latents)] * real, []


FAMILY = Family(
    name="Idefics2",
    model_types=("idefics2",),
    layouts=find_layouts,
    decoder=DECODER,
    towers=TOWERS,
    projector=PROJECTOR,
)
