"""Video-LLaVA: images without, frames of videos with the class token of their tower."""

from __future__ import annotations

from torch import Tensor, nn

from tokencover.runtime.families.arguments import patch_grid, pixels
from tokencover.runtime.families.llava import from_crops, image_layout
from tokencover.runtime.family import Family, Media
from tokencover.runtime.layout import Layout, grid_with_classes


def layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each image; for each video its frames, each after its class token."""
    return _images(media), _videos(media)


def _images(media: Media) -> list[Layout]:
    if media.images is None:
        return []
    # The second name is the one that processors used before transformers 5.23.
    names = ("pixel_values", "pixel_values_images")
    values = pixels(media.images, "images channels height width", *names)
    return [image_layout(media, *values.shape[-2:])] * len(values)


def _videos(media: Media) -> list[Layout]:
    if media.videos is None:
        return []
    axes = "videos frames channels height width"
    values = pixels(media.videos, axes, "pixel_values_videos")
    videos, frames, _, height, width = values.shape
    return [grid_with_classes(frames, *patch_grid(media, height, width))] * videos


def tower_tokens(
    base: nn.Module, media: Media, images: Tensor | None, videos: Tensor | None
) -> tuple[list[Tensor], list[Tensor]]:
    """The tokens of each crop or frame in order."""
    return from_crops(_images(media), images), from_crops(_videos(media), videos)


FAMILY = Family(
    name="Video-LLaVA",
    model_types=("video_llava",),
    layouts=layouts,
    towers=("model.image_tower", "model.video_tower"),
    tower_tokens=tower_tokens,
)
