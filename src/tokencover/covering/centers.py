"""Centres chosen so far, in a form that serves both estimates and exact distances.

A token snapped to the grid (`exact.py`) has integer coordinates of up to 2**24, and float32 holds
every one of them. So each centre is snapped once and kept in float32, as a unit vector: estimates
multiply it as it is, and times 2**24 it is the exact form again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tokencover.covering.estimate import Cloud
from tokencover.covering.exact import RESOLUTION, Points
from tokencover.covering.workspace import Workspace

_ROWS_AT_ONCE = 64
"""Tokens made exact at a time: few enough to stay in a processor's cache."""


class Centers:
    """Centres of one sample, in order of choice. Only one of a thread's may be in use at a time.

    Parameters
    ----------
    room : int
        How many there may be in the end.
    width : int
        d.
    """

    def __init__(self, room: int, width: int) -> None:
        self._space = Workspace.of_this_thread("centers")
        self._count = 0
        self._tokens = torch.empty(room, dtype=torch.int64)
        self._square = torch.empty(room, dtype=torch.float64)
        self._directions = self._space.empty("directions", (room, width), torch.float32)

    @classmethod
    def of(cls, cloud: Cloud, tokens: Tensor, room: int) -> Centers:
        """The given tokens as the first centres."""
        centers = cls(room, cloud.tokens.shape[1])
        space = Workspace.of_this_thread("top")
        for block in tokens.split(_ROWS_AT_ONCE):
            centers.add(block, cloud.points(block, space))
        return centers

    def __len__(self) -> int:
        return self._count

    @property
    def tokens(self) -> Tensor:
        """Which tokens they are, ``(centres,)`` int64."""
        return self._tokens[: self._count]

    @property
    def directions(self) -> Tensor:
        """Unit vectors for `Cloud.cosines`, ``(centres, d)`` float32."""
        return self._directions[: self._count]

    def add(self, tokens: Tensor, points: Points) -> None:
        """Append centres, given as indices and in exact form."""
        where = slice(self._count, self._count + len(tokens))
        self._tokens[where] = tokens
        self._square[where] = points.square
        self._directions[where].copy_(points.grid).mul_(1 / RESOLUTION)
        self._count = where.stop

    def keep(self, places: Tensor) -> None:
        """Keep only some, in the order of `places`."""
        self._count = len(places)
        for values in (self._tokens, self._square):
            values[: self._count] = values.index_select(0, places)
        others = self._space.empty("others", tuple(self._directions.shape), torch.float32)
        torch.index_select(self._directions, 0, places, out=others[: self._count])
        self._directions = others

    def points(self, places: Tensor, space: Workspace, grid: Tensor) -> Points:
        """Some of them in exact form, written to `grid`, ``(places, d)`` float64."""
        rows = space.empty("rows", tuple(grid.shape), torch.float32)
        torch.index_select(self._directions, 0, places, out=rows)
        return Points(grid.copy_(rows).mul_(RESOLUTION), self._square.index_select(0, places))
