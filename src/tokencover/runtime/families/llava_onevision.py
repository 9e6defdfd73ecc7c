"""LLaVA-OneVision: tiles for an image that is alone, a base view for others, pooled video."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, sqrt
from typing import Any

from tokencover.errors import InputError
from tokencover.runtime.families.anyres import measure_base, measure_tiles
from tokencover.runtime.families.family import Family
from tokencover.runtime.families.layout import (
    Layout,
    Media,
    add_newline,
    grid,
    grid_with_newlines,
    join_views,
    read_pixels,
    read_rows,
    read_setting,
    require,
)

ASPECT_RATIO = "anyres_max_"
SLACK = 1.1
"""The tiled view is scaled down once its side exceeds the largest one by this factor."""


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """Give each image that is alone in its prompt two views, others the base view and a newline.

    Frame 0 is the base view, frame 1 all tiles as one picture. That picture may have been scaled
    down, so its rows and columns are those of the tokens, not of patches. A video is its pooled
    frames and one newline.
    """
    return _find_images(media), _find_videos(media)


def _find_images(media: Media) -> list[Layout]:
    if media.images is None:
        return []
    sizes = read_rows(require(media.images, "image_sizes"))
    alone = _find_alone(media.images, len(sizes))
    return [
        _lay_out_tiles(media, size) if only else add_newline(_lay_out_base(media))
        for size, only in zip(sizes, alone, strict=True)
    ]


def _find_alone(arguments: Mapping[str, Any], images: int) -> list[bool]:
    """Whether each image is the only one of its prompt, as the model takes it by default."""
    counts = arguments.get("batch_num_images")
    if counts is None:
        return [True] * images
    counts = [int(count) for count in counts]
    if sum(counts) != images:
        raise InputError(
            f"batch_num_images {counts} counts {sum(counts)} images, but image_sizes has {images}; "
            f"pass both as the processor returns them"
        )
    return [count == 1 for count in counts for _ in range(count)]


def _lay_out_base(media: Media) -> Layout:
    side = measure_base(media)
    return grid(1, side, side)


def _lay_out_tiles(media: Media, size: Sequence[int]) -> Layout:
    rows, columns = measure_tiles(media, size)
    ratio = sqrt(rows * columns / (_read_most_tiles(media) * measure_base(media) ** 2))
    if ratio > SLACK:
        rows, columns = int(rows // ratio), int(columns // ratio)
    return join_views(_lay_out_base(media), grid_with_newlines(rows, columns))


def _read_most_tiles(media: Media) -> int:
    value = str(read_setting(media, media.images or {}, "vision_aspect_ratio"))
    number = value.removeprefix(ASPECT_RATIO)
    if not number.isdecimal():
        raise InputError(
            f"vision_aspect_ratio is {value!r}, but must be {ASPECT_RATIO!r} and a number of tiles,"
            f" such as 'anyres_max_9'; leave it to the model's configuration"
        )
    return int(number)


def _find_videos(media: Media) -> list[Layout]:
    if media.videos is None:
        return []
    axes = "videos frames channels height width"
    values = read_pixels(media.videos, axes, "pixel_values_videos")
    side = ceil(measure_base(media) / 2)
    return [add_newline(grid(values.shape[1], side, side))] * len(values)


FAMILY = Family(name="LLaVA-OneVision", model_types=("llava_onevision",), layouts=find_layouts)
