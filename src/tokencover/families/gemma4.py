"""Gemma 4: pictures of any shape, whose patches are pooled square by square."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tokencover.errors import InputError
from tokencover.families.family import Family
from tokencover.families.layout import Layout, Media, grid, require


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each image, and one with a frame for each of a video's."""
    return find_pooled_layouts(media, media.config.vision_config.pooling_kernel_size)


def find_pooled_layouts(media: Media, pool: int) -> tuple[list[Layout], list[Layout]]:
    """The same, where squares of ``pool`` by ``pool`` patches make a token each."""
    images = [] if media.images is None else _lay_out(media.images, "image_position_ids", pool)
    if media.videos is None:
        return images, []
    frames = _lay_out(media.videos, "video_position_ids", pool)
    videos, start = [], 0
    for count in require(media.videos, "num_frames_per_video").tolist():
        videos.append(_join_frames(frames[start : start + count]))
        start += count
    return images, videos


def _lay_out(arguments: Any, name: str, pool: int) -> list[Layout]:
    """Grids from the places (x, y) of patches ``(pictures, patches, 2)``; -1 is padding."""
    positions: Tensor = require(arguments, name)
    sizes = positions.amax(1).add(1).div(pool, rounding_mode="floor").tolist()
    return [grid(1, rows, columns) for columns, rows in sizes]


def _join_frames(frames: list[Layout]) -> Layout:
    shapes = {frame.shape for frame in frames}
    if len(shapes) != 1:
        raise InputError(f"frames of one video differ in shape: {sorted(shapes)}.")
    _, rows, columns = frames[0].shape
    return grid(len(frames), rows, columns)


FAMILY = Family(
    name="Gemma 4",
    model_types=("gemma4",),
    layouts=find_layouts,
    projector="model.embed_vision",
    windows=True,
    both_directions=True,
    reads_attention=False,
)
