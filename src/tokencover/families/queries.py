"""Learned queries read each tile, so its tokens have no location in the image.

A layout is one row per tile, and a column is the number of the query.
"""

from __future__ import annotations

from functools import partial

from tokencover.families.family import Family
from tokencover.families.layout import (
    Layout,
    Layouts,
    Media,
    add_newline,
    build_equal_grids,
    count_patches,
    grid,
    join_views,
    read_pixels,
)

AXES = "tiles channels height width"


def _count_aria_queries(media: Media, height: int, width: int) -> tuple[int, int]:
    rows, columns = count_patches(media, height, width)
    return 1, media.config.projector_patch_to_query_dict[rows * columns]


ARIA = Family(
    name="Aria",
    model_types=("aria",),
    layouts=partial(build_equal_grids, axes=AXES, measure=_count_aria_queries),
    needs={"aria": "5.20"},
)
"""Aria: learned queries read each tile, so its tokens have no location in the image."""


def _build_idefics2_layouts(media: Media) -> Layouts:
    """The model skips the zero tiles that pad samples with fewer tiles."""
    if media.images is None:
        return [], []
    pixels = read_pixels(media.images, f"batch {AXES}", "pixel_values")
    real = int(pixels.flatten(2).any(-1).sum())
    return [grid(1, 1, media.config.perceiver_config.resampler_n_latents)] * real, []


IDEFICS2 = Family(
    name="Idefics2",
    model_types=("idefics2",),
    layouts=_build_idefics2_layouts,
    decoder="model.text_model",
    vision_encoders=("model.vision_model",),
    projector="model.connector",
)
"""Idefics2: a resampler reads each tile, so its tokens have no location in the image."""

_FEW, _MANY = 144, 256
"""How many queries read a view of DeepSeek-OCR 2, by the tokens of its first encoder."""
_STRIDE = 4
"""Two convolutions of stride 2 lead from patches to these tokens."""


def _build_ocr_layouts(media: Media) -> Layouts:
    """One row per view, those of tiles first, then a separator."""
    if media.images is None:
        return [], []
    axes = "views channels height width"
    pixels = read_pixels(media.images, axes, "pixel_values")
    whole = _build_view(media, *pixels.shape[-2:])
    if media.images.get("pixel_values_local") is None:
        return [add_newline(whole)] * len(pixels), []
    local = read_pixels(media.images, axes, "pixel_values_local")
    tile = _build_view(media, *local.shape[-2:])
    counts = [int(count) for count in media.images["num_local_patches"]]
    return [add_newline(join_views(*[tile] * count, whole)) for count in counts], []


def _build_view(media: Media, height: int, width: int) -> Layout:
    sam = media.config.vision_config.sam_config
    rows, columns = (-(-(side // sam.patch_size) // _STRIDE) for side in (height, width))
    return grid(1, 1, _FEW if rows * columns <= _FEW else _MANY)


DEEPSEEK_OCR2 = Family(
    name="DeepSeek-OCR 2", model_types=("deepseek_ocr2",), layouts=_build_ocr_layouts
)
"""DeepSeek-OCR 2: learned queries read each view, so its tokens have no location in the image."""
