"""The tensors of several pictures, one picture at a time, and together again.

Two forms are known: a row for each picture (the LLaVAs), and all patches in one row beside a grid
for each picture (the Qwen-VLs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

GRIDS = "image_grid_thw"
PIXELS = "pixel_values"

PictureTensors = Mapping[str, Any]
"""Tensors by name, as the model's own encoder is called with them."""


def split_pictures(images: PictureTensors) -> list[dict[str, Tensor]]:
    """The tensors of each picture."""
    if GRIDS in images:
        grids = torch.as_tensor(images[GRIDS])
        pixels = images[PIXELS].split(grids.prod(-1).tolist())
        return [{PIXELS: part, GRIDS: grid} for part, grid in zip(pixels, grids, strict=True)]
    count = len(images[PIXELS])
    return [
        {name: torch.as_tensor(values[place]) for name, values in images.items()}
        for place in range(count)
    ]


def join_pictures(pictures: Sequence[Mapping[str, Tensor]]) -> dict[str, Any]:
    """What `split_pictures` took apart; pictures of different sizes stay a list."""
    if GRIDS in pictures[0]:
        return {
            PIXELS: torch.cat([picture[PIXELS] for picture in pictures]),
            GRIDS: torch.stack([picture[GRIDS] for picture in pictures]),
        }
    joined: dict[str, Any] = {}
    for name in pictures[0]:
        values = [picture[name] for picture in pictures]
        alike = all(value.shape == values[0].shape for value in values)
        joined[name] = torch.stack(values) if alike else values
    return joined
