"""A base view and its tiles: what methods for high resolution divide a budget among."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tokencover.errors import InputError
from tokencover.methods.base import View
from tokencover.methods.encoder_rows import Crops


@dataclass(frozen=True, slots=True)
class Picture:
    """The crops of one picture; a frame of a video is a picture without tiles.

    Attributes
    ----------
    base : int
        The crop that shows all of it.
    tiles : tuple of int
        The crops that show parts of it, row by row; those of which padding was all are not there.
    grid : tuple of int
        Rows and columns of tiles, (0, 0) if there are none.
    """

    base: int
    tiles: tuple[int, ...]
    grid: tuple[int, int]

    @property
    def crops(self) -> tuple[int, ...]:
        """Base view first."""
        return (self.base, *self.tiles)


def pictures(view: View, crops: Crops) -> list[list[Picture]]:
    """For each sample its pictures, in the order of the sequence."""
    row, column = crops.plane(view.row), crops.plane(view.column)
    return [_pictures_of(mine, crops, row, column) for mine in crops.members]


def _pictures_of(mine: list[int], crops: Crops, row: Tensor, column: Tensor) -> list[Picture]:
    found = []
    for crop in mine:
        if crops.frame[crop] == 0 or crops.video[crop]:
            tiles = tuple(
                other
                for other in mine
                if crops.frame[other] > 0
                and crops.medium[other] == crops.medium[crop]
                and not crops.video[other]
                and not crops.video[crop]
            )
            # Tiles along the upper and the left edge of the stitched view.
            grid = (
                sum(bool((column[tile] == 0).any()) for tile in tiles),
                sum(bool((row[tile] == 0).any()) for tile in tiles),
            )
            if grid[0] * grid[1] != len(tiles):
                raise InputError(
                    f"the {len(tiles)} tiles of a picture do not form a grid, but {grid[0]} lie at "
                    f"its left and {grid[1]} at its upper edge: use a method that acts in the "
                    "decoder, tc.MoB say."
                )
            found.append(Picture(crop, tiles, grid))
    return found
