"""Crops that a method merges in together, and where their tokens lie in a tower's row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tokencover.errors import InputError
from tokencover.families import FoldedTiles, Layout
from tokencover.pruning.vision.squares import Squares


@dataclass(frozen=True, slots=True)
class CropSet:
    """Crops of one shape, which stay equally long.

    Attributes
    ----------
    squares : Squares
        What becomes a visual token, in each of the crops.
    places : Tensor
        ``(c, t)`` int64, where each token (class tokens, then patches square by square, squares in
        raster order) lies in the tower's row, before anything is merged.
    pictures : tuple of int
        How many of the crops each picture has, in order.
    """

    squares: Squares
    places: Tensor
    pictures: tuple[int, ...]


def set_up_plain(
    grid: tuple[int, int], classes: int, crops: int, pictures: tuple[int, ...]
) -> list[CropSet]:
    """Crops whose patches, in raster order, are visual tokens one to one: all in one set."""
    squares = Squares(*grid, patches=1, classes=classes)
    places = torch.arange(crops * squares.units).view(crops, -1)
    return [CropSet(squares, places, pictures)]


def set_up_folded(crops: FoldedTiles, layouts: Sequence[Layout], packed: bool) -> list[CropSet]:
    """Crops whose patches are folded, in the order of the pictures.

    Parameters
    ----------
    crops : FoldedTiles
        Of the pictures that one tower call is given.
    layouts : sequence of Layout
        Of these pictures.
    packed : bool
        Whether each picture is a set of its own, as long as it is; otherwise crops stay equally
        long, because the tower has them side by side.
    """
    if not packed:
        if len({each.shape for each in layouts}) != 1:
            raise InputError("the crops of one call differ in size: give them in separate calls.")
        frames = tuple(each.shape[0] for each in layouts)
        return [_take_crops(crops, layouts[0].shape, 0, frames)]
    found, first = [], 0
    for layout in layouts:
        found.append(_take_crops(crops, layout.shape, first, (layout.shape[0],)))
        first += layout.shape[0]
    return found


def _take_crops(
    crops: FoldedTiles, shape: tuple[int, int, int], first: int, pictures: tuple[int, ...]
) -> CropSet:
    """Crops from the first on, all with so many rows and columns of cells."""
    _, rows, columns = shape
    own = slice(first, first + sum(pictures))
    classes = crops.class_index[own]
    cells = crops.index.view(crops.sources.shape)[own, : rows * columns]
    patches = int((cells[0, 0] >= 0).sum())
    places = torch.cat([classes, cells[..., :patches].flatten(1)], dim=1)
    return CropSet(Squares(rows, columns, patches, classes.shape[1]), places, pictures)
