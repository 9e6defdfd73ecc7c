"""LLaVA-Next, and its kin for video: a base view, then tiles whose rows end with newline tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tokencover.errors import InputError
from tokencover.families.anyres import measure_base, measure_tiles
from tokencover.families.family import Family
from tokencover.families.layout import (
    Layout,
    Media,
    grid,
    grid_with_newlines,
    join_views,
    read_pixels,
    read_rows,
    read_setting,
    require,
)


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """Two views for each image: frame 0 is the base view, frame 1 all tiles as one picture."""
    return _find_images(media), _find_videos(media)


def _find_images(media: Media) -> list[Layout]:
    if media.images is None:
        return []
    side = measure_base(media)
    sizes = read_rows(require(media.images, "image_sizes"))
    shapes = [measure_tiles(media, size) for size in sizes]
    return [join_views(grid(1, side, side), grid_with_newlines(*shape)) for shape in shapes]


def _find_videos(media: Media) -> list[Layout]:
    """Frames that are pooled, without newlines; only LLaVA-Next-Video has any."""
    if media.videos is None:
        return []
    axes = "videos frames channels height width"
    values = read_pixels(media.videos, axes, "pixel_values_videos")
    side = measure_base(media) // media.config.spatial_pool_stride
    return [grid(values.shape[1], side, side)] * len(values)


def carry_tower_tokens(
    base: Any, media: Media, images: Tensor | None, videos: Tensor | None
) -> tuple[list[Tensor], list[Tensor]]:
    """The model packs its tiles itself: it moves and cuts features, but computes nothing."""
    if videos is not None:
        raise InputError(
            "LLaVA-Next pools the frames of a video, so tokens of the vision tower are not visual "
            "tokens: use a method that neither merges nor reads there, for example tc.MoB."
        )
    if images is None or media.images is None:
        return [], []
    from transformers.models.llava_next.modeling_llava_next import image_size_to_num_patches

    sizes = read_rows(require(media.images, "image_sizes"))
    side = media.config.vision_config.image_size
    pinpoints = media.config.image_grid_pinpoints
    counts = [image_size_to_num_patches(size, pinpoints, side) for size in sizes]
    strategy = read_setting(media, media.images, "vision_feature_select_strategy")
    # Doubles hold the numbers exactly; newline tokens become -1.
    numbers = images[:, 1:] if strategy == "default" else images
    crops = numbers.double().unsqueeze(-1).split(counts)
    newline = torch.tensor([-1.0], dtype=torch.float64)
    packed, _ = base.pack_image_features(crops, torch.tensor(sizes), strategy, newline)
    return [each.squeeze(-1).long() for each in packed], []


FAMILY = Family(
    name="LLaVA-Next",
    model_types=("llava_next", "llava_next_video"),
    layouts=find_layouts,
    tiles=True,
    tower_tokens=carry_tower_tokens,
    class_token=True,
)
