"""Any-resolution images: a base view and tiles, shared by LLaVA-Next and LLaVA-OneVision.

Counts follow the processors of the two families, not their models, so that a test that compares
them with the number of features compares two sources.
"""

import torch
from torch import Tensor
from transformers.image_processing_utils import select_best_resolution

from .entry import Inputs, Medium, noise
from .layout import Grid, Tiled
from .vision_encoders import PATCH

SIDE = 3
VIEW = SIDE * PATCH
PINPOINTS = [[VIEW, VIEW], [VIEW, 2 * VIEW], [2 * VIEW, VIEW], [2 * VIEW, 2 * VIEW]]
BASE = Grid(1, SIDE, SIDE)


def tiles_of(size: tuple[int, ...]) -> int:
    """Count the tiles of an image of this height and width, without the base view."""
    height, width = _best(size)
    return (height // VIEW) * (width // VIEW)


def unpadded(size: tuple[int, ...]) -> Grid:
    """Give the grid of the tiled view after the padding is cut away."""
    best_height, best_width = _best(size)
    rows, columns = best_height // PATCH, best_width // PATCH
    height, width = size
    if width / height > columns / rows:
        new_rows = int(round(height * (columns / width), 7))
        rows -= (rows - new_rows) // 2 * 2
    else:
        new_columns = int(round(width * (rows / height), 7))
        columns -= (columns - new_columns) // 2 * 2
    return Grid(1, rows, columns)


def image(seed: int, size: tuple[int, int], layout: Tiled) -> Medium:
    """Make the base view and, if the layout has any, the tiles of one image."""
    crops = 1 + (tiles_of(size) if layout.tiles is not None else 0)
    pixels = noise(seed, crops, 3, VIEW, VIEW)
    return Medium(pixels, layout, size=size, token_side=PATCH)


def stack_images(media: list[Medium]) -> Inputs:
    """Stack images of different numbers of crops, with zeros for the missing ones."""
    if not media:
        return {}
    crops = max(len(medium.pixels) for medium in media)
    pixels = torch.stack([_with_crops(medium.pixels, crops) for medium in media])
    return {"pixel_values": pixels, "image_sizes": torch.tensor([medium.size for medium in media])}


def _with_crops(pixels: Tensor, crops: int) -> Tensor:
    missing = pixels.new_zeros(crops - len(pixels), *pixels.shape[1:])
    return torch.cat([pixels, missing])


def _best(size: tuple[int, ...]) -> tuple[int, int]:
    height, width = select_best_resolution(size, PINPOINTS)
    return int(height), int(width)
