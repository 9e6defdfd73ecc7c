"""Images as square tiles, whose patches become tokens by squares, or are read by learned queries.

These models do not know which tiles form one image, so each tile counts as an image here, and rows
and columns count within the tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tokencover.families.family import Family
from tokencover.families.folding import PatchCounts, SquareFolding
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
    require,
    require_square,
)
from tokencover.families.qwen import cut_deepstack

AXES = "tiles channels height width"


def count_tile_patches(media: Media) -> PatchCounts:
    """The patches of each tile."""
    if media.images is None:
        return [], []
    pixels = read_pixels(media.images, AXES, "pixel_values")
    side = require_square(*count_patches(media, *pixels.shape[-2:]))
    return [(1, side, side)] * len(pixels), []


def build_square_tiles(
    media: Media,
    merge: Callable[[int, Any], int],
    patches: Callable[[Media], PatchCounts] = count_tile_patches,
) -> Layouts:
    """One square grid per tile; ``merge(side, config)`` is its side, from the side in patches."""
    tiles, _ = patches(media)
    if not tiles:
        return [], []
    side = merge(tiles[0][1], media.config)
    return [grid(1, side, side)] * len(tiles), []


INTERNVL = Family(
    name="InternVL",
    model_types=("internvl", "qianfan_ocr"),
    layouts=partial(
        build_square_tiles, merge=lambda side, config: int(side * config.downsample_ratio)
    ),
    folding=SquareFolding(count_tile_patches),
    merges_squares=True,
    class_token=True,
)
"""InternVL, and Qianfan-OCR which is built like it. A video is frames, each an image."""


OVIS2 = Family(
    name="Ovis2",
    model_types=("ovis2",),
    needs={"ovis2": "5.20"},
    layouts=partial(
        build_square_tiles,
        merge=lambda side, config: -(-side // config.vision_config.hidden_stride),
    ),
    projector="model.visual_embeddings_table",
    folding=SquareFolding(count_tile_patches),
)
"""Ovis2: merged patches become words of a visual vocabulary.

The tags around tiles have learned features too; they are text here, and always kept.
"""


COHERE_VISION = Family(
    name="Cohere Vision",
    model_types=("cohere2_vision", "aya_vision"),
    layouts=partial(
        build_square_tiles, merge=lambda side, config: side // config.downsample_factor
    ),
    windows=True,
)
"""Command A Vision and Aya Vision."""


def _measure_got_grid(media: Media, height: int, width: int) -> tuple[int, int]:
    """Two convolutions of stride 2 connect the vision encoder and the decoder."""
    rows, columns = count_patches(media, height, width)
    return -(-rows // 4), -(-columns // 4)


GOT_OCR2 = Family(
    name="GOT-OCR 2",
    model_types=("got_ocr2", "pp_chart2table"),
    layouts=partial(build_equal_grids, axes=AXES, measure=_measure_got_grid),
)
"""GOT-OCR 2 and PP-Chart2Table (the same model): 4 x 4 patches become one token."""


def _count_real_patches(media: Media, least: int = 0) -> PatchCounts:
    """The patches of each tile that is not all zeros; at least `least` tiles.

    The model skips the zero tiles that pad samples with fewer tiles.
    """
    if media.images is None:
        return [], []
    pixels = read_pixels(media.images, f"batch {AXES}", "pixel_values")
    real = int(pixels.flatten(2).any(-1).sum())
    side = require_square(*count_patches(media, *pixels.shape[-2:]))
    return [(1, side, side)] * max(real, least), []


_count_padded_patches = partial(_count_real_patches, least=1)
_build_idefics_layouts = partial(
    build_square_tiles, merge=lambda side, config: side // config.scale_factor
)


IDEFICS3 = Family(
    name="Idefics3",
    model_types=("idefics3",),
    layouts=partial(_build_idefics_layouts, patches=_count_real_patches),
    folding=SquareFolding(_count_real_patches),
    decoder="model.text_model",
    vision_encoders=("model.vision_model",),
    projector="model.connector",
)
"""Idefics3: tiles of an image, then a view of all of it."""

SMOLVLM = replace(
    IDEFICS3,
    name="SmolVLM",
    model_types=("smolvlm",),
    layouts=partial(_build_idefics_layouts, patches=_count_padded_patches),
    folding=SquareFolding(_count_padded_patches),
)
"""SmolVLM: Idefics3's tiles, of which at least one is kept; a video is frames as images."""


def _build_docling_layouts(media: Media) -> Layouts:
    if media.images is None:
        return [], []
    merged: int = media.config.vision_config.scale_factor
    if media.images.get("tile_fine_mask") is not None:  # the model reads only whether it is given
        merged //= 2
    return build_square_tiles(media, lambda side, config: side // merged, _count_docling_patches)


def _count_docling_patches(media: Media) -> PatchCounts:
    """The patches of each tile that is not padding."""
    if media.images is None:
        return [], []
    vision = media.config.vision_config
    side = vision.image_size // vision.patch_size
    return [(1, side, side)] * int(require(media.images, "pixel_attention_mask").sum()), []


GRANITE_DOCLING = replace(
    IDEFICS3,
    name="Granite Docling",
    model_types=("granite_docling",),
    layouts=_build_docling_layouts,
    folding=SquareFolding(_count_docling_patches),
    projector="model.vision_model.connector",
    decoder_hooks=cut_deepstack,
    needs={"granite_docling": "5.23"},
)
"""Granite Docling: tiles of a page, whose features are added after the first layers again."""


# ---- learned queries read each tile: one row, whose columns are the numbers of queries ---------


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


IDEFICS2 = replace(
    IDEFICS3,
    name="Idefics2",
    model_types=("idefics2",),
    layouts=_build_idefics2_layouts,
    folding=None,
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
