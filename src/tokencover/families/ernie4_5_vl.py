"""ERNIE 4.5 VL: any resolution; two frames of a video become one."""

from __future__ import annotations

from tokencover.families import patch_grids
from tokencover.families.family import Family
from tokencover.families.layout import Layout, Media, grid


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each image and each video."""
    images, videos = patch_grids.find_layouts(media)
    merged: int = media.config.vision_config.temporal_merge_size
    shapes = [video.shape for video in videos]
    return images, [grid(frames // merged, rows, columns) for frames, rows, columns in shapes]


FAMILY = Family(
    name="ERNIE 4.5 VL",
    model_types=("ernie4_5_vl_moe",),
    layouts=find_layouts,
    folding=patch_grids.FOLDING,
    merges_squares=True,
    projector="model.resampler_model",
    several_axes=True,
)
