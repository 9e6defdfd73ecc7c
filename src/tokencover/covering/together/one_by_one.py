"""Algorithm 1's loop in exact arithmetic, for tokens too much alike for estimates.

One sample at a time, by a table of exact distances where that fits. Otherwise each new center is
compared with all tokens, whose grid points are kept in float32 (integers up to 2**24). Nothing is
read back.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tokencover.covering.exact import Points, cosine, select_largest, select_smallest, snap
from tokencover.covering.together.directions import Directions

_LARGEST_TABLE = 2**30
_CENTERS_AT_ONCE = 256


def choose_farthest_exactly(cloud: Directions, start: Tensor, count: int) -> Tensor:
    """Choose `count` tokens of a batch of one, each farthest from all centers so far.

    `start` are ``(s,)`` int64 indices of centers to begin with, perhaps none; `count` is at most
    the number of other tokens. Returns ``(count,)`` int64, in order of choice.
    """
    loop = _Loop(cloud)
    if count == 0:
        return start.new_empty(0)
    if len(start) == 0:
        first = loop.select_farthest_from_mean(cloud.exists[0]).unsqueeze(0)
        return torch.cat([first, loop.choose(first, count - 1)])
    return loop.choose(start, count)


class _Loop:
    """The tokens of one sample on the grid."""

    def __init__(self, cloud: Directions) -> None:
        parts = list(cloud.snap_all())
        self._sizes = [len(part.square[0]) for part in parts]
        # Whole numbers up to 2**24: float32 holds them.
        self._grid = torch.cat([part.grid[0].float() for part in parts])
        self._square = torch.cat([part.square[0] for part in parts])
        self._exists = cloud.exists[0]

    def select_farthest_from_mean(self, exists: Tensor) -> Tensor:
        """The token with the smallest cosine to the mean direction, a scalar."""
        parts = [rows.double().sum(0, keepdim=True) for rows in self._grid.split(self._sizes)]
        mean = snap(torch.stack(parts).sum(0))
        return select_smallest(self._compare(mean).squeeze(-1).masked_fill_(~exists, math.inf))

    def choose(self, start: Tensor, count: int) -> Tensor:
        """Choose `count` tokens after some centers."""
        away = torch.full_like(self._square, math.inf)
        for some in start.split(_CENTERS_AT_ONCE):
            to_some = (1.0 - self._compare(self._take(some)).amax(-1)).clamp_(min=0.0)
            torch.minimum(away, to_some, out=away)
        away.masked_fill_(~self._exists, -math.inf)[start] = -math.inf
        tokens = len(away)
        table = self._measure_all() if 8 * tokens**2 <= _LARGEST_TABLE else None
        order = torch.empty(count, dtype=torch.int64, device=away.device)
        for step in range(count):
            pick = select_largest(away).unsqueeze(0)
            order[step : step + 1] = pick
            if table is not None:
                row = table.index_select(0, pick)[0]
            else:
                row = (1.0 - self._compare(self._take(pick)).squeeze(-1)).clamp_(min=0.0)
                row.index_fill_(0, pick, -math.inf)
            torch.minimum(away, row, out=away)
        return order

    def _measure_all(self) -> Tensor:
        """Distances of all pairs; -inf for a token's own, so that nothing is chosen twice."""
        everything = torch.arange(len(self._square), device=self._square.device)
        columns = [
            (1.0 - self._compare(self._take(some))).clamp_(min=0.0)
            for some in everything.split(self._sizes)
        ]
        table = torch.cat(columns, dim=1)  # as good as rows: distances are symmetric
        table.fill_diagonal_(-math.inf)
        return table

    def _compare(self, others: Points) -> Tensor:
        """Exact cosines of all tokens with some points, ``(n, m)``."""
        parts = zip(self._grid.split(self._sizes), self._square.split(self._sizes), strict=True)
        return torch.cat([cosine(Points(grid.double(), square), others) for grid, square in parts])

    def _take(self, index: Tensor) -> Points:
        return Points(self._grid[index].double(), self._square[index])
