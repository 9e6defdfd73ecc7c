"""Video-LLaVA: images without, frames of videos with the class token of their tower."""

from __future__ import annotations

from torch import Tensor, nn

from tokencover.families.family import Family
from tokencover.families.layout import (
    Layout,
    Media,
    count_patches,
    grid_with_classes,
    read_pixels,
)
from tokencover.families.llava import cut_crops, lay_out_image


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each image; for each video its frames, each after its class token."""
    return _find_images(media), _find_videos(media)


def _find_images(media: Media) -> list[Layout]:
    if media.images is None:
        return []
    # The second name is the one that processors used before transformers 5.23.
    names = ("pixel_values", "pixel_values_images")
    values = read_pixels(media.images, "images channels height width", *names)
    return [lay_out_image(media, *values.shape[-2:])] * len(values)


def _find_videos(media: Media) -> list[Layout]:
    if media.videos is None:
        return []
    axes = "videos frames channels height width"
    values = read_pixels(media.videos, axes, "pixel_values_videos")
    videos, frames, _, height, width = values.shape
    return [grid_with_classes(frames, *count_patches(media, height, width))] * videos


def carry_tower_tokens(
    base: nn.Module, media: Media, images: Tensor | None, videos: Tensor | None
) -> tuple[list[Tensor], list[Tensor]]:
    """The tokens of each crop or frame in order."""
    return cut_crops(_find_images(media), images), cut_crops(_find_videos(media), videos)


FAMILY = Family(
    name="Video-LLaVA",
    model_types=("video_llava",),
    needs={"video_llava": "5.21"},
    layouts=find_layouts,
    towers=("model.image_tower", "model.video_tower"),
    tower_tokens=carry_tower_tokens,
    class_token=True,
    encodes_singly=True,
)
