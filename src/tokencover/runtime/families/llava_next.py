"""LLaVA-Next, and its kin for video: a base view, then tiles whose rows end with newline tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tokencover.errors import InputError
from tokencover.runtime.families.anyres import base_side, tiled_shape
from tokencover.runtime.families.arguments import pixels, required, rows_of_integers, setting
from tokencover.runtime.family import Family, Media
from tokencover.runtime.layout import Layout, grid, grid_with_newlines, views


def layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """Two views for each image: frame 0 is the base view, frame 1 all tiles as one picture."""
    return _images(media), _videos(media)


def _images(media: Media) -> list[Layout]:
    if media.images is None:
        return []
    side = base_side(media)
    sizes = rows_of_integers(required(media.images, "image_sizes"))
    shapes = [tiled_shape(media, size) for size in sizes]
    return [views(grid(1, side, side), grid_with_newlines(*shape)) for shape in shapes]


def _videos(media: Media) -> list[Layout]:
    """Frames that are pooled, without newlines; only LLaVA-Next-Video has any."""
    if media.videos is None:
        return []
    axes = "videos frames channels height width"
    values = pixels(media.videos, axes, "pixel_values_videos")
    side = base_side(media) // media.config.spatial_pool_stride
    return [grid(values.shape[1], side, side)] * len(values)


def tower_tokens(
    base: Any, media: Media, images: Tensor | None, videos: Tensor | None
) -> tuple[list[Tensor], list[Tensor]]:
    """The model packs its tiles itself: it moves and cuts features, but computes nothing."""
    if videos is not None:
        raise InputError(
            "LLaVA-Next pools the frames of a video, so tokens of the vision tower are not visual "
            "tokens: use a method that neither merges nor reads there, tc.MoB say."
        )
    if images is None or media.images is None:
        return [], []
    from transformers.models.llava_next.modeling_llava_next import image_size_to_num_patches

    sizes = rows_of_integers(required(media.images, "image_sizes"))
    side = media.config.vision_config.image_size
    pinpoints = media.config.image_grid_pinpoints
    counts = [image_size_to_num_patches(size, pinpoints, side) for size in sizes]
    strategy = setting(media, media.images, "vision_feature_select_strategy")
    # Doubles hold the numbers exactly; newline tokens become -1.
    numbers = images[:, 1:] if strategy == "default" else images
    crops = numbers.double().unsqueeze(-1).split(counts)
    newline = torch.tensor([-1.0], dtype=torch.float64)
    packed, _ = base.pack_image_features(crops, torch.tensor(sizes), strategy, newline)
    return [each.squeeze(-1).long() for each in packed], []


FAMILY = Family(
    name="LLaVA-Next",
    model_types=("llava_next", "llava_next_video"),
    layouts=layouts,
    tiles=True,
    tower_tokens=tower_tokens,
)
