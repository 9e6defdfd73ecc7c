"""LLaVA-OneVision: tiles for the only image of a prompt, a base view for others, pooled videos."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, sqrt
from typing import Any

import torch

from tokencover.errors import InputError
from tokencover.families.family import Family
from tokencover.families.folding import (
    FoldedTiles,
    PatchMixtures,
    VisionEncoderFacts,
    end_rows,
    gather_cells,
    interpolate,
)
from tokencover.families.layout import (
    Layout,
    Layouts,
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
from tokencover.families.llava import measure_base, measure_tiles

ASPECT_RATIO = "anyres_max_"
NEVER_SCALED = 10**6
"""More tiles than any image has."""
SLACK = 1.1
"""The model scales the tiled view down if its side exceeds the maximum by this factor."""


def _build_layouts(media: Media) -> Layouts:
    """Two views for the only image of a prompt; else the base view and a newline.

    Frame 0 is the base view, frame 1 all tiles as one view. The model may scale that view down, so
    its rows and columns are those of tokens, not of patches. A video is its pooled frames and one
    newline.
    """
    images, videos = [], []
    if media.images is not None:
        sizes = read_rows(require(media.images, "image_sizes"))
        images = [
            _build_tiles(media, size) if single else add_newline(_build_base(media))
            for size, single in zip(sizes, _list_single(media.images, len(sizes)), strict=True)
        ]
    if media.videos is not None:
        axes = "videos frames channels height width"
        pixels = read_pixels(media.videos, axes, "pixel_values_videos")
        side = ceil(measure_base(media) / 2)
        videos = [add_newline(grid(pixels.shape[1], side, side))] * len(pixels)
    return images, videos


def _list_single(arguments: Mapping[str, Any], images: int) -> list[bool]:
    """Whether each image is the only one of its prompt; the model's default is True."""
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


def _build_base(media: Media) -> Layout:
    side = measure_base(media)
    return grid(1, side, side)


def _build_tiles(media: Media, size: Sequence[int]) -> Layout:
    rows, columns = measure_tiles(media, size)
    ratio = _measure_excess(media, rows, columns)
    if ratio > SLACK:
        rows, columns = int(rows // ratio), int(columns // ratio)
    return join_views(_build_base(media), grid_with_newlines(rows, columns))


def _measure_excess(media: Media, rows: int, columns: int) -> float:
    """The side of a tiled view, relative to the longest one."""
    value = str(read_setting(media, media.images or {}, "vision_aspect_ratio"))
    most = value.removeprefix(ASPECT_RATIO)
    if not most.isdecimal():
        raise InputError(
            f"vision_aspect_ratio is {value!r}, but must be {ASPECT_RATIO!r} and a number of tiles,"
            f" such as 'anyres_max_9'; leave it to the model's configuration"
        )
    return sqrt(rows * columns / (int(most) * measure_base(media) ** 2))


class ScaledTiles:
    """The model packs tiles into one view, which it may scale down, and pools frames of videos.

    Both are bilinear interpolations, so a visual token is a mixture of up to four patches.
    """

    def measure(self, media: Media) -> None:
        """Do nothing: `place` reads sizes and the shape of pixels only."""

    def place(
        self, base: Any, media: Media, layouts: Layouts, measured: Any, encoder: VisionEncoderFacts
    ) -> FoldedTiles:
        """See `Folding`."""
        side = measure_base(media)
        counts = _count_tiles(media)
        images = _mix_images(base, media, counts, side)
        frames = [layout.shape[0] for layout in layouts[1]]
        videos = _mix_frames(frames, sum(counts) * side * side, side)
        tiles, tokens = sum(counts) + sum(frames), encoder.classes + side * side
        index = torch.arange(tiles * tokens).view(tiles, tokens)
        return gather_cells(
            images, videos, index[:, encoder.classes :], index[:, : encoder.classes]
        )


def _count_tiles(media: Media) -> list[int]:
    """The number of tiles of each image, with its base view."""
    if media.images is None:
        return []
    from transformers.models.llava_onevision.modeling_llava_onevision import (
        image_size_to_num_patches,
    )

    sizes = read_rows(require(media.images, "image_sizes"))
    view, pinpoints = media.config.vision_config.image_size, media.config.image_grid_pinpoints
    return [
        image_size_to_num_patches(size, pinpoints, view) if single else 1
        for size, single in zip(sizes, _list_single(media.images, len(sizes)), strict=True)
    ]


def _mix_images(base: Any, media: Media, counts: Sequence[int], side: int) -> list[PatchMixtures]:
    """Let the model pack numbers of patches, before it scales anything down."""
    if media.images is None:
        return []
    sizes = read_rows(require(media.images, "image_sizes"))
    # Doubles represent the numbers exactly; newline tokens become -1.
    numbers = torch.arange(sum(counts) * side * side, dtype=torch.float64).view(-1, side * side, 1)
    newline = torch.tensor([-1.0], dtype=torch.float64)
    packed, _ = base.pack_image_features(
        numbers.split(list(counts)), torch.tensor(sizes), newline, f"{ASPECT_RATIO}{NEVER_SCALED}"
    )
    indices = [each.squeeze(-1).long() for each in packed]
    return [
        PatchMixtures.plain(index) if count == 1 else _scale_tiles(media, index, size, side)
        for index, size, count in zip(indices, sizes, counts, strict=True)
    ]


def _scale_tiles(
    media: Media, index: torch.Tensor, size: Sequence[int], side: int
) -> PatchMixtures:
    rows, columns = measure_tiles(media, size)
    ratio = _measure_excess(media, rows, columns)
    if ratio <= SLACK:
        return PatchMixtures.plain(index)
    view, tiles = index[: side * side], index[side * side :].view(rows, columns + 1)[:, :-1]
    rows, columns = int(rows // ratio), int(columns // ratio)
    scaled = end_rows(interpolate(tiles, rows, columns), columns)
    return PatchMixtures.join([PatchMixtures.plain(view), scaled])


def _mix_frames(frames: Sequence[int], start: int, side: int) -> list[PatchMixtures]:
    pooled, videos = ceil(side / 2), []
    newline = PatchMixtures.plain(torch.tensor([-1]))
    for count in frames:
        index = start + torch.arange(count * side * side).view(count, side, side)
        start += index.numel()
        mixed = [interpolate(frame, pooled, pooled) for frame in index]
        videos.append(PatchMixtures.join([*mixed, newline]))
    return videos


LLAVA_ONEVISION = Family(
    name="LLaVA-OneVision",
    model_types=("llava_onevision",),
    layouts=_build_layouts,
    tiles=True,
    folding=ScaledTiles(),
)
"""LLaVA-OneVision: tiles for the only image of a prompt, a base view for others, pooled videos."""
