"""InternVL, and Qianfan-OCR which is built like it: crops, whose patches are folded.

A video is frames, each an image.
"""

from __future__ import annotations

from tokencover.runtime.families.arguments import patch_grid, pixels, square_side
from tokencover.runtime.family import Family, Media
from tokencover.runtime.layout import Layout, grid


def layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each crop, in order; rows and columns count inside the crop.

    The model is not told which crops make one image, so each crop is an image of its own here.
    """
    if media.images is None:
        return [], []
    values = pixels(media.images, "crops channels height width", "pixel_values")
    patches = square_side(*patch_grid(media, *values.shape[-2:]))
    side = int(patches * media.config.downsample_ratio)
    return [grid(1, side, side)] * len(values), []


FAMILY = Family(name="InternVL", model_types=("internvl", "qianfan_ocr"), layouts=layouts)
