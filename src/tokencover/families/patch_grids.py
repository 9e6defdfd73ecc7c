"""Images of any size as rows of patches, with a grid of (frames, rows, columns) for each.

A square of patches becomes one token, and tokens are in raster order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from tokencover.errors import InputError
from tokencover.families.family import Family
from tokencover.families.folding import PatchCounts, Patches, SquareFolding
from tokencover.families.layout import (
    Layout,
    Layouts,
    Media,
    add_newline,
    grid,
    grid_with_newlines,
    keep_tokens,
    read_rows,
    require,
)

COMPRESSION = "video_compression_mask"
"""Which tokens of all videos together VideoLLaMA 3's processor has kept."""


def read_patches(media: Media) -> PatchCounts:
    """The patches of each image and each video."""
    images = _read_grids(media.images, "image_grid_thw")
    return images, _read_grids(media.videos, "video_grid_thw")


def _read_grids(arguments: Mapping[str, Any] | None, name: str) -> list[Patches]:
    if arguments is None:
        return []
    grids = read_rows(require(arguments, name))
    return [(frames, rows, columns) for frames, rows, columns in grids]


FOLDING = SquareFolding(read_patches, in_squares=True)


def build_layouts(media: Media, size: str = "spatial_merge_size") -> Layouts:
    """One grid for each image and each video.

    The setting `size` of the vision encoder has the side, or the sides, of the patches of a token.
    """
    sides = getattr(media.config.vision_config, size)
    tall, wide = (sides, sides) if isinstance(sides, int) else sides
    images, videos = (
        [grid(frames, rows // tall, columns // wide) for frames, rows, columns in patches]
        for patches in read_patches(media)
    )
    return images, videos


def _build_glm_layouts(media: Media) -> Layouts:
    """List videos as images: a prompt has image tokens for the frames of a video.

    The model gets either images or videos, never both at once.
    """
    images, videos = build_layouts(media)
    return images + videos, []


def _read_glm_patches(media: Media) -> PatchCounts:
    images, videos = read_patches(media)
    return images + videos, []


GLM4V = Family(
    name="GLM-4V",
    model_types=("glm4v", "glm4v_moe", "glm46v", "glmga", "glm_ocr"),
    layouts=_build_glm_layouts,
    folding=SquareFolding(_read_glm_patches, in_squares=True),
    merges_squares=True,
    vision_encoders=("model.visual",),
    projector="model.visual.merger",
    several_axes=True,
    frames_as_images=True,
)
"""GLM-4V and its variants: any resolution, images or videos."""


def _build_ernie_layouts(media: Media) -> Layouts:
    """Merge adjacent frames of videos."""
    images, videos = build_layouts(media)
    merged: int = media.config.vision_config.temporal_merge_size
    shapes = [video.shape for video in videos]
    return images, [grid(frames // merged, rows, columns) for frames, rows, columns in shapes]


ERNIE4_5_VL = Family(
    name="ERNIE 4.5 VL",
    model_types=("ernie4_5_vl_moe",),
    layouts=_build_ernie_layouts,
    folding=FOLDING,
    merges_squares=True,
    projector="model.resampler_model",
    several_axes=True,
    token_arguments=("moe_mm_token_type_ids",),
)
"""ERNIE 4.5 VL: any resolution; two frames of a video become one."""


def _build_kimi_layouts(media: Media) -> Layouts:
    """One frame of tokens for each image and each video."""
    images, videos = (
        [grid(1, *layout.shape[1:]) for layout in layouts]
        for layouts in build_layouts(media, "merge_kernel_size")
    )
    return images, videos


KIMI_K25 = Family(
    name="Kimi K2.5",
    model_types=("kimi_k25",),
    layouts=_build_kimi_layouts,
    folding=SquareFolding(read_patches),
    projector="model.mm_projector",
    reads_attention=False,
)
"""Kimi K2.5: any resolution; the frames of a video are averaged to one."""


MUSE = Family(
    name="Muse",
    model_types=("muse_glimmer", "muse_spark"),
    needs={"muse_spark": "5.20"},
    layouts=partial(build_layouts, size="merge_size"),
    projector="model.vision_projection",
    windows=True,
    reads_attention=False,
)
"""Muse Glimmer and Spark: layers with windows and rotations, and layers without either."""


def _build_hunyuan_layouts(media: Media) -> Layouts:
    """One view for each image, between two tokens that belong to no row."""
    images, _ = build_layouts(media)
    return [_enclose(*image.shape[1:]) for image in images], []


def _enclose(rows: int, columns: int) -> Layout:
    closed = add_newline(grid_with_newlines(rows, columns))
    last = len(closed) - 1
    return keep_tokens(closed, closed.kind.new_tensor([last, *range(len(closed))]))


HUNYUAN_VL = Family(
    name="HunYuan VL",
    model_types=("hunyuan_vl",),
    layouts=_build_hunyuan_layouts,
    folding=SquareFolding(read_patches),
    projector="model.vision_tower.patch_merger",
    several_axes=True,
    reads_attention=False,
)
"""HunYuan VL: any resolution; a newline ends each row, and each image has a first and last token.

The model numbers images through the whole batch, and the number is one axis of its position IDs.
The output of a sample thus depends on the images of the samples before it, pruned or not.
"""

PADDLEOCR_VL = Family(
    name="PaddleOCR-VL",
    model_types=("paddleocr_vl",),
    layouts=build_layouts,
    folding=SquareFolding(read_patches),
    merges_squares=True,
    vision_encoders=("model.visual",),
    projector="model.projector",
    several_axes=True,
)
"""PaddleOCR-VL: any resolution, images only."""

LFM3_VL = Family(
    name="LFM3-VL",
    model_types=("lfm3_vl",),
    layouts=build_layouts,
    norm="embedding_norm",
    windows=True,
    reads_attention=False,
    needs={"lfm3_vl": "5.23"},
)
"""LFM3-VL: any resolution; a decoder of convolutions, windows and full attention."""


def _build_video_llama_layouts(media: Media) -> Layouts:
    """One grid for each image and each video, without tokens that the processor left out."""
    images, videos = (
        _read_merged_grids(arguments, kind)
        for arguments, kind in ((media.images, "image"), (media.videos, "video"))
    )
    mask = (media.call or {}).get(COMPRESSION)
    return images, videos if mask is None or not videos else _compress(videos, mask)


def _read_merged_grids(arguments: Mapping[str, Any] | None, kind: str) -> list[Layout]:
    """Grids of images or videos that give the side of their squares themselves."""
    if arguments is None:
        return []
    patches = _read_grids(arguments, f"{kind}_grid_thw")
    sides = [int(side) for side in require(arguments, f"{kind}_merge_sizes")]
    return [
        grid(frames, rows // side, columns // side)
        for (frames, rows, columns), side in zip(patches, sides, strict=True)
    ]


def _compress(videos: Sequence[Layout], mask: Tensor) -> list[Layout]:
    sizes = [len(video) for video in videos]
    repeats, rest = divmod(len(mask), sum(sizes))  # beam search repeats every entry
    if rest or not repeats:
        raise InputError(
            f"{COMPRESSION} has {len(mask)} entries, but the videos have {sum(sizes)} tokens; pass "
            f"all outputs of the processor for the same videos"
        )
    parts = mask[::repeats].cpu().bool().split(sizes)
    return [keep_tokens(video, part) for video, part in zip(videos, parts, strict=True)]


VIDEO_LLAMA_3 = Family(
    name="VideoLLaMA 3",
    model_types=("video_llama_3",),
    layouts=_build_video_llama_layouts,
    folding=FOLDING,
    vision_encoders=("model.vision_model",),
    projector="model.projector",
    call_names=(COMPRESSION,),
)
"""VideoLLaMA 3: any resolution, images and videos; frames may lack what did not change."""
