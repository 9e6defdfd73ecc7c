"""Images of any size as patches in raster order, however many of them become one token."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .entry import Inputs, Medium, Recipe, Sample, noise
from .layout import Layout
from .qwen_media import IMAGE_GRIDS, MERGE, merged
from .vision_encoders import PATCH
from .vocabulary import IMAGE


def media(recipe: Recipe) -> tuple[Medium, ...]:
    return tuple(
        _image(10 * recipe.seed + index, *IMAGE_GRIDS[shape])
        for index, shape in enumerate(recipe.images)
    )


def _image(seed: int, frames: int, rows: int, columns: int) -> Medium:
    size = (frames, rows, columns)
    pixels = noise(seed, frames, 3, rows * PATCH, columns * PATCH)
    return Medium(pixels, merged(size), size=size, token_side=MERGE * PATCH)


def cut(pixels: Tensor, side: int = PATCH) -> Tensor:
    """Give the patches ``(patches, 3, side, side)`` of images ``(frames, 3, height, width)``."""
    frames, channels, height, width = pixels.shape
    rows, columns = height // side, width // side
    patches = pixels.reshape(frames, channels, rows, side, columns, side)
    return patches.permute(0, 2, 4, 1, 3, 5).reshape(-1, channels, side, side)


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    """Concatenate the patches and say for each token whether it is text or image."""
    packed = {"mm_token_type_ids": (text["input_ids"] == IMAGE).int()}
    images = [medium for sample in samples for medium in sample.media]
    if images:
        packed["pixel_values"] = torch.cat([cut(image.pixels) for image in images])
        packed["image_grid_thw"] = torch.tensor([image.size for image in images])
    return packed


def layouts(inputs: Inputs) -> tuple[list[Layout], list[Layout]]:
    grids = inputs["image_grid_thw"].tolist() if "image_grid_thw" in inputs else []
    found: list[Layout] = [merged(grid) for grid in grids]
    return found, []
