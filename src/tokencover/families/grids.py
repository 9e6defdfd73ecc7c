"""One grid for each image or tile, of all patches, or pooled by averages or convolutions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.families.family import Family
from tokencover.families.folding import PatchCounts, SquareFolding
from tokencover.families.layout import (
    Layout,
    Layouts,
    Media,
    build_equal_grids,
    count_patches,
    grid,
    join_views,
    read_pixels,
    read_rows,
    require,
    require_square,
)

AXES = "images channels height width"
_build_layouts = partial(build_equal_grids, axes=AXES, measure=count_patches)


def _map_vision_tokens(
    base: nn.Module, media: Media, images: Tensor | None, videos: Tensor | None
) -> tuple[list[Tensor], list[Tensor]]:
    """The tokens of each image, in order."""
    return [] if images is None else list(images), []


DEEPSEEK_VL = Family(
    name="DeepSeek-VL",
    model_types=("deepseek_vl",),
    layouts=_build_layouts,
    vision_encoders=("model.vision_model",),
    projector="model.aligner",
    map_vision_tokens=_map_vision_tokens,
)
"""DeepSeek-VL: one SigLIP grid for each image."""

DEEPSEEK_VL_HYBRID = replace(
    DEEPSEEK_VL,
    name="DeepSeek-VL hybrid",
    model_types=("deepseek_vl_hybrid",),
    vision_encoders=("model.vision_model", "model.high_res_vision_model"),
    map_vision_tokens=None,
)
"""DeepSeek-VL with a second vision encoder, for the same image in higher resolution."""

JANUS = replace(DEEPSEEK_VL, name="Janus", model_types=("janus",))
"""Janus, which reads images like DeepSeek-VL; image generation is not pruned."""

PALIGEMMA = Family(
    name="PaliGemma",
    model_types=("paligemma",),
    layouts=_build_layouts,
    windows=True,
    both_directions=True,
)
"""PaliGemma: one grid for each image; all tokens of the prompt attend to each other."""

_FAST_VIT_STRIDE = 64
"""Of the FastViT-HD vision encoders; the configuration does not have it."""


def _measure_fast_grid(media: Media, height: int, width: int) -> tuple[int, int]:
    return -(-height // _FAST_VIT_STRIDE), -(-width // _FAST_VIT_STRIDE)


FAST_VLM = Family(
    name="FastVLM",
    model_types=("fast_vlm",),
    layouts=partial(build_equal_grids, axes=AXES, measure=_measure_fast_grid),
)
"""FastVLM: a convolutional vision encoder makes one grid of each image."""


def _measure_gemma3_grid(media: Media, height: int, width: int) -> tuple[int, int]:
    """A square for each image; tiles of an image (pan and scan) are separate images."""
    side = int(media.config.mm_tokens_per_image**0.5)
    return side, side


GEMMA3 = Family(
    name="Gemma 3",
    model_types=("gemma3",),
    layouts=partial(build_equal_grids, axes=AXES, measure=_measure_gemma3_grid),
    windows=True,
    both_directions=True,
)
"""Gemma 3: one pooled grid for each image or tile, whose tokens attend to each other."""


def _build_gemma4_layouts(media: Media, pool: int | None = None) -> Layouts:
    """One grid for each image, one with all frames for each video.

    Squares of ``pool * pool`` patches make a token each.
    """
    pool = media.config.vision_config.pooling_kernel_size if pool is None else pool
    images = [] if media.images is None else _read_grids(media.images, "image_position_ids", pool)
    if media.videos is None:
        return images, []
    frames = _read_grids(media.videos, "video_position_ids", pool)
    videos, start = [], 0
    for count in require(media.videos, "num_frames_per_video").tolist():
        videos.append(_join_frames(frames[start : start + count]))
        start += count
    return images, videos


def _read_grids(arguments: Mapping[str, Any], name: str, pool: int) -> list[Layout]:
    """Grids from the locations (x, y) of patches ``(images, patches, 2)``; -1 is padding."""
    positions: Tensor = require(arguments, name)
    sizes = positions.amax(1).add(1).div(pool, rounding_mode="floor").tolist()
    return [grid(1, rows, columns) for columns, rows in sizes]


def _join_frames(frames: list[Layout]) -> Layout:
    shapes = {frame.shape for frame in frames}
    if len(shapes) != 1:
        raise InputError(f"frames of one video differ in shape: {sorted(shapes)}.")
    _, rows, columns = frames[0].shape
    return grid(len(frames), rows, columns)


GEMMA4 = Family(
    name="Gemma 4",
    model_types=("gemma4",),
    layouts=_build_gemma4_layouts,
    projector="model.embed_vision",
    windows=True,
    both_directions=True,
    reads_attention=False,
)
"""Gemma 4: images of any shape, whose patches are pooled square by square."""

GEMMA4_UNIFIED = replace(
    GEMMA4,
    name="Gemma 4 Unified",
    model_types=("gemma4_unified",),
    layouts=partial(_build_gemma4_layouts, pool=1),
    vision_encoders=("model.embed_vision",),
    projector="model.embed_vision.multimodal_embedder",
)
"""Gemma 4 without a vision encoder: patches go straight to the decoder."""


def _count_mistral_patches(media: Media) -> PatchCounts:
    if media.images is None:
        return [], []
    sizes = read_rows(require(media.images, "image_sizes"))
    return [(1, *count_patches(media, *size)) for size in sizes], []


def _build_mistral_layouts(media: Media) -> Layouts:
    """One grid for each image; the ends of its rows in the prompt are text tokens."""
    side: int = media.config.spatial_merge_size
    patches, _ = _count_mistral_patches(media)
    return [grid(1, rows // side, columns // side) for _, rows, columns in patches], []


MISTRAL3 = Family(
    name="Mistral 3",
    model_types=("mistral3",),
    layouts=_build_mistral_layouts,
    folding=SquareFolding(_count_mistral_patches),
)
"""Mistral 3: images of any size, a square of patches becomes one token."""

LIGHTON_OCR = replace(
    MISTRAL3,
    name="LightOnOCR",
    model_types=("lighton_ocr",),
    vision_encoders=("model.vision_encoder",),
    projector="model.vision_projection",
)
"""LightOnOCR: Mistral 3's images and a Qwen3 decoder."""


def _build_minicpm_layouts(media: Media) -> Layouts:
    """One grid for each tile and each frame."""
    images = _read_minicpm_grids(media, media.images, "target_sizes")
    return images, _read_minicpm_grids(media, media.videos, "target_sizes_videos")


def _read_minicpm_grids(
    media: Media, arguments: Mapping[str, Any] | None, name: str
) -> list[Layout]:
    if arguments is None:
        return []
    config = media.config
    mode = arguments.get("downsample_mode") or config.downsample_mode
    rows, columns = (side**config.merger_times for side in config.merge_kernel_size)
    window = 1 if mode == "4x" else 2  # the vision encoder merges squares before the merger does
    sizes = read_rows(require(arguments, name))
    return [grid(1, high // window // rows, wide // window // columns) for high, wide in sizes]


MINICPM_V = Family(
    name="MiniCPM-V",
    model_types=("minicpmv4_6", "minicpmv4_7", "minicpm_ocr"),
    needs={"minicpm_ocr": "5.21"},
    layouts=_build_minicpm_layouts,
    projector="model.merger",
    several_axes=True,
    reads_attention=False,
)
"""MiniCPM-V 4.6 and 4.7 and MiniCPM-OCR: tiles of an image, and Qwen3.5's decoder.

The models do not know which tiles form one image, or which frames one video: each counts as one.
"""


def _build_lfm2_layouts(media: Media) -> Layouts:
    if media.images is None:
        return [], []
    side: int = media.config.downsample_factor
    sizes = read_rows(require(media.images, "spatial_shapes"))
    return [grid(1, rows // side, columns // side) for rows, columns in sizes], []


LFM2_VL = Family(
    name="LFM2-VL",
    model_types=("lfm2_vl",),
    layouts=_build_lfm2_layouts,
    norm="embedding_norm",
    reads_attention=False,
)
"""LFM2-VL: images and tiles of any size, and a decoder that is mostly short convolutions.

The model does not know which tiles form one image: each counts as one.
"""


def _build_molmo_layouts(media: Media) -> Layouts:
    """One layout for each image, its small view first; one grid with all frames for each video."""
    images, videos = [], []
    if media.images is not None:
        for *size, tiled_rows, tiled_columns in read_rows(require(media.images, "image_grids")):
            small, large = grid(1, *size), grid(1, tiled_rows, tiled_columns)
            images.append(join_views(small, large) if len(large) else small)
    if media.videos is not None:
        videos = [grid(*size) for size in read_rows(require(media.videos, "video_grids"))]
    return images, videos


MOLMO2 = Family(
    name="Molmo 2",
    model_types=("molmo2",),
    needs={"molmo2": "5.20"},
    layouts=_build_molmo_layouts,
    both_directions=True,
)
"""Molmo 2: a small view of the image, then a large one of tiles; all its tokens attend to each
other.
"""


def _build_perception_layouts(media: Media) -> Layouts:
    """One grid for each image and each video; `frame` counts the views of an image.

    The model does not know the arrangement of tiles: rows and columns count within each view.
    """
    images, videos = (
        [] if arguments is None else _read_views(media, arguments)
        for arguments in (media.images, media.videos)
    )
    return images, videos


def _read_views(media: Media, arguments: Mapping[str, Any]) -> list[Layout]:
    # Videos come by the image encoder, so their pixels have the same name.
    pixels = read_pixels(arguments, "media views channels height width", "pixel_values")
    patch = _get_patch_size(media.config.vision_config)
    patches = require_square(*(length // patch for length in pixels.shape[-2:]))
    side = patches // media.config.projector_pooling_ratio
    return [grid(pixels.shape[1], side, side)] * len(pixels)


def _get_patch_size(vision: Any) -> int:
    """The patch size, in timm from the name, as in ``vit_pe_core_large_patch14_336``."""
    known = getattr(vision, "patch_size", None)
    if known is not None:
        return int(known)
    name = str(getattr(vision, "architecture", ""))
    found = re.search(r"patch(\d+)", name)
    if found is None:
        raise InputError(
            f"the configuration of the vision encoder {name!r} has no patch size, so the grid of "
            f"its tokens is unknown; use a vision encoder with a patch size in its name"
        )
    return int(found[1])


PERCEPTION_LM = Family(
    name="PerceptionLM",
    model_types=("perception_lm",),
    layouts=_build_perception_layouts,
    needs={"perception_lm": "5.20"},
)
"""PerceptionLM: a small view and tiles of each image, or frames, each pooled to a square grid."""


def _build_step_layouts(media: Media) -> Layouts:
    """The views of each image in sequence order: a grid for each tile, the whole last."""
    if media.images is None:
        return [], []
    pixels = read_pixels(media.images, AXES, "pixel_values")
    tiles, local = media.images.get("num_local_patches"), media.images.get("pixel_values_local")
    counts = [0] * len(pixels) if tiles is None else [int(count) for count in tiles]
    whole = _build_step_view(media, pixels)
    if local is None:
        return [whole] * len(pixels), []
    tile = _build_step_view(media, local)
    return [join_views(*[tile] * count, whole) for count in counts], []


def _build_step_view(media: Media, pixels: Tensor) -> Layout:
    rows, columns = count_patches(media, *pixels.shape[-2:])
    for _ in range(2):  # convolutions of stride 2
        rows, columns = -(-rows // 2), -(-columns // 2)
    return grid(1, rows, columns)


STEP3P7 = Family(
    name="Step 3.7",
    model_types=("step3p7",),
    layouts=_build_step_layouts,
    vision_encoders=("model.vision_model",),
    windows=True,
    reads_attention=False,
)
"""Step 3.7: tiles of the image, if there are any, then all of it; convolutions pool both."""
