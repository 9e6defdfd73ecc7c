"""Step 3.7: crops of the picture, if there are any, then all of it; convolutions pool both."""

from __future__ import annotations

from torch import Tensor

from tokencover.families.family import Family
from tokencover.families.layout import (
    Layout,
    Media,
    count_patches,
    grid,
    join_views,
    read_pixels,
)

STRIDES = 2
"""How often a convolution halves the rows and columns of patches."""


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """The views of each image in the order of its tokens: a grid for each crop, the whole last."""
    if media.images is None:
        return [], []
    values = read_pixels(media.images, "images channels height width", "pixel_values")
    crops, local = media.images.get("num_local_patches"), media.images.get("pixel_values_local")
    counts = [0] * len(values) if crops is None else [int(count) for count in crops]
    whole = _lay_out(media, values)
    if local is None:
        return [whole] * len(values), []
    crop = _lay_out(media, local)
    return [join_views(*[crop] * count, whole) for count in counts], []


def _lay_out(media: Media, pixels: Tensor) -> Layout:
    rows, columns = count_patches(media, *pixels.shape[-2:])
    for _ in range(STRIDES):
        rows, columns = -(-rows // 2), -(-columns // 2)
    return grid(1, rows, columns)


FAMILY = Family(
    name="Step 3.7",
    model_types=("step3p7",),
    layouts=find_layouts,
    towers=("model.vision_model",),
    windows=True,
    reads_attention=False,
)
