"""LLaVA-OneVision: tiles for an image that is alone, a base view for others, pooled video."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, sqrt
from typing import Any

import torch
from torch import Tensor

from tokencover.errors import InputError
from tokencover.families.anyres import measure_base, measure_tiles
from tokencover.families.family import Family
from tokencover.families.folding import FoldedCrops, Layouts, TowerFacts
from tokencover.families.layout import (
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
from tokencover.families.mixed_tokens import Mixed, end_rows, gather_cells, interpolate

ASPECT_RATIO = "anyres_max_"
NEVER_SCALED = 10**6
"""Tiles that no picture has."""
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
    ratio = _measure_excess(media, rows, columns)
    if ratio > SLACK:
        rows, columns = int(rows // ratio), int(columns // ratio)
    return join_views(_lay_out_base(media), grid_with_newlines(rows, columns))


def _measure_excess(media: Media, rows: int, columns: int) -> float:
    """How much longer than the longest the sides of a tiled view are."""
    return sqrt(rows * columns / (_read_most_tiles(media) * measure_base(media) ** 2))


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


class ScaledTiles:
    """Tiles are packed into one view, which may be scaled down; frames of videos are pooled.

    Both go by bilinear interpolation, so a visual token is a mixture of up to four patches.
    """

    def measure(self, media: Media) -> None:
        """Nothing: sizes and the shape of pixels are enough."""

    def place(
        self, base: Any, media: Media, layouts: Layouts, measured: Any, tower: TowerFacts
    ) -> FoldedCrops:
        """See `Folding`."""
        side = measure_base(media)
        counts = _count_tiles(media)
        images = _mix_images(base, media, counts, side)
        frames = [layout.shape[0] for layout in layouts[1]]
        videos = _mix_frames(frames, sum(counts) * side * side, side)
        crops, tokens = sum(counts) + sum(frames), tower.classes + side * side
        index = torch.arange(crops * tokens).view(crops, tokens)
        return gather_cells(images, videos, index[:, tower.classes :], index[:, : tower.classes])


def _count_tiles(media: Media) -> list[int]:
    """How many crops each image has, its base view included."""
    if media.images is None:
        return []
    from transformers.models.llava_onevision.modeling_llava_onevision import (
        image_size_to_num_patches,
    )

    sizes = read_rows(require(media.images, "image_sizes"))
    view, pinpoints = media.config.vision_config.image_size, media.config.image_grid_pinpoints
    return [
        image_size_to_num_patches(size, pinpoints, view) if only else 1
        for size, only in zip(sizes, _find_alone(media.images, len(sizes)), strict=True)
    ]


def _mix_images(base: Any, media: Media, counts: Sequence[int], side: int) -> list[Mixed]:
    """The model packs numbers of patches itself, before anything is scaled down."""
    if media.images is None:
        return []
    sizes = read_rows(require(media.images, "image_sizes"))
    # Doubles hold the numbers exactly; newline tokens become -1.
    numbers = torch.arange(sum(counts) * side * side, dtype=torch.float64).view(-1, side * side, 1)
    newline = torch.tensor([-1.0], dtype=torch.float64)
    packed, _ = base.pack_image_features(
        numbers.split(list(counts)), torch.tensor(sizes), newline, f"{ASPECT_RATIO}{NEVER_SCALED}"
    )
    whole = [each.squeeze(-1).long() for each in packed]
    return [
        Mixed.plain(places) if count == 1 else _scale_tiles(media, places, size, side)
        for places, size, count in zip(whole, sizes, counts, strict=True)
    ]


def _scale_tiles(media: Media, places: Tensor, size: Sequence[int], side: int) -> Mixed:
    rows, columns = measure_tiles(media, size)
    ratio = _measure_excess(media, rows, columns)
    if ratio <= SLACK:
        return Mixed.plain(places)
    view, tiles = places[: side * side], places[side * side :].view(rows, columns + 1)[:, :-1]
    rows, columns = int(rows // ratio), int(columns // ratio)
    return Mixed.join([Mixed.plain(view), end_rows(interpolate(tiles, rows, columns), columns)])


def _mix_frames(frames: Sequence[int], start: int, side: int) -> list[Mixed]:
    pooled, found = ceil(side / 2), []
    newline = Mixed.plain(torch.tensor([-1]))
    for count in frames:
        places = start + torch.arange(count * side * side).view(count, side, side)
        start += places.numel()
        found.append(Mixed.join([*(interpolate(each, pooled, pooled) for each in places), newline]))
    return found


FAMILY = Family(
    name="LLaVA-OneVision",
    model_types=("llava_onevision",),
    layouts=find_layouts,
    tiles=True,
    folding=ScaledTiles(),
)
