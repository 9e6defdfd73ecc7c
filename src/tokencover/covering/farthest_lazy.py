"""Farthest point sampling for the CPU: look only at tokens that may be the farthest.

Algorithm 1 compares every token with every new centre, N * d work a centre. But a distance to the
nearest centre can only shrink when centres are added: an old distance is an upper bound, and most
tokens need never be looked at again (the accelerated greedy of Minoux, 1978). Three steps, from
cheap to exact:

1. float32 estimates to the starting centres, once for all tokens, bound every distance;
2. a token whose bound comes to the top is admitted to the pool: its distance becomes exact;
3. the top of the pool is renewed against the centres that are newer than its distances, and
   whatever is then provably the farthest is chosen.

The result is the same as that of `farthest_dense.py`, index for index.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable

import torch
from torch import Tensor

from tokencover.covering.estimate import Cloud
from tokencover.covering.exact import Points, cosine, distance_to_nearest, mean_direction

_ADMITTED_AT_ONCE = 32
_RENEWED_AT_ONCE = 16


def farthest_lazy(cloud: Cloud, start: Tensor, count: int) -> Tensor:
    """Choose `count` tokens, each farthest from `start` and those chosen before it.

    Parameters
    ----------
    cloud : Cloud
        The ``n`` tokens of one sample.
    start : Tensor
        Distinct indices of centres that are there already; may be empty.
    count : int
        At most ``n - len(start)``.

    Returns
    -------
    Tensor
        ``(count,)`` int64, in order of choice.
    """
    chosen: list[int] = []
    if len(start) == 0 and count > 0:
        chosen = [_farthest_from_mean(cloud)]
        start = torch.tensor(chosen)
    if len(chosen) < count:
        chosen += _Pool(cloud, start, count - len(chosen)).choose()
    return torch.tensor(chosen, dtype=torch.int64)


class _Pool:
    """Tokens with exact distances, behind them the sorted bounds of all others."""

    def __init__(self, cloud: Cloud, start: Tensor, count: int) -> None:
        self._cloud = cloud
        self._start = start
        self._count = count
        self._table = cloud.cosines(cloud.directions(start))
        bound = 1.0 - self._table.amax(-1) + cloud.error
        bound[start] = -math.inf
        ordered, self._waiting = bound.sort(descending=True)
        self._bounds = ordered.tolist()[: len(bound) - len(start)]
        self._admitted = 0

        self._heap: list[tuple[float, int, int]] = []
        """(-distance, index, how many of the chosen centres the distance accounts for)."""
        self._chosen: list[int] = []
        self._centers = Points(
            torch.empty(count, cloud.tokens.shape[-1], dtype=torch.float64),
            torch.empty(count, dtype=torch.float64),
        )

    def choose(self) -> list[int]:
        """All `count` tokens, in order of choice."""
        size = _RENEWED_AT_ONCE
        while len(self._chosen) < self._count:
            before = len(self._chosen)
            self._admit()
            self._choose_from_top(size)
            size = _RENEWED_AT_ONCE if len(self._chosen) > before else 2 * size
        return self._chosen

    def _next_bound(self) -> float:
        return self._bounds[self._admitted] if self._admitted < len(self._bounds) else -math.inf

    def _admit(self) -> None:
        """Take in tokens until no bound behind the pool exceeds the distance at its top."""
        size = _ADMITTED_AT_ONCE
        while self._admitted < len(self._bounds) and (
            not self._heap or self._next_bound() >= -self._heap[0][0]
        ):
            index = self._waiting[self._admitted : min(self._admitted + size, len(self._bounds))]
            self._admitted += len(index)
            points = self._cloud.points(index)
            distance = distance_to_nearest(points, self._start_centers_near(index)).tolist()
            self._push(index.tolist(), self._renewed(points, distance, since=0))
            size *= 2

    def _start_centers_near(self, index: Tensor) -> Points:
        """The starting centres that may be the nearest one of some of these tokens."""
        estimate = self._table[index]
        near = estimate >= estimate.amax(-1, keepdim=True) - 2 * self._cloud.error
        return self._cloud.points(self._start[near.any(0)])

    def _renewed(self, points: Points, distance: list[float], since: int) -> list[float]:
        """Distances that account for the centres chosen since then, too."""
        newer = self._centers[since : len(self._chosen)]
        if len(newer.square) == 0:
            return distance
        return list(map(min, distance, distance_to_nearest(points, newer).tolist()))

    def _push(self, tokens: Iterable[int], distance: Iterable[float]) -> None:
        for token, far in zip(tokens, distance, strict=True):
            heapq.heappush(self._heap, (-far, token, len(self._chosen)))

    def _choose_from_top(self, size: int) -> None:
        """Renew the top of the pool, and choose there while no token outside can be farther."""
        popped = [heapq.heappop(self._heap) for _ in range(min(size, len(self._heap)))]
        tokens = [token for _, token, _ in popped]
        points = self._cloud.points(torch.tensor(tokens))
        since = min(seen for _, _, seen in popped)
        distance = self._renewed(points, [-value for value, _, _ in popped], since)
        apart = (1.0 - cosine(points, points)).clamp_(min=0.0).tolist()

        picked: list[int] = []
        left = set(range(len(tokens)))
        while left and len(self._chosen) + len(picked) < self._count:
            best = min(left, key=lambda place: (-distance[place], tokens[place]))
            if not self._is_farthest(distance[best], tokens[best]):
                break
            left.remove(best)
            picked.append(best)
            distance = list(map(min, distance, apart[best]))
        self._add_centers(
            [tokens[place] for place in picked], points[torch.tensor(picked, dtype=torch.int64)]
        )
        self._push((tokens[place] for place in left), (distance[place] for place in left))

    def _is_farthest(self, distance: float, token: int) -> bool:
        """Whether no token outside can be farther, or as far with a lower index."""
        if self._next_bound() >= distance:
            return False
        return not self._heap or (-distance, token) < self._heap[0][:2]

    def _add_centers(self, tokens: list[int], points: Points) -> None:
        places = slice(len(self._chosen), len(self._chosen) + len(tokens))
        self._centers.grid[places] = points.grid
        self._centers.square[places] = points.square
        self._chosen += tokens


def _farthest_from_mean(cloud: Cloud) -> int:
    """The first centre when there is none: the token farthest from the mean of all."""
    mean = mean_direction(cloud.points())
    direction = torch.nn.functional.normalize(mean.grid, dim=-1).float()
    estimate = cloud.cosines(direction).squeeze(-1)
    rivals = (estimate <= estimate.amin() + 2 * cloud.error).nonzero().squeeze(-1)
    return int(rivals[cosine(cloud.points(rivals), mean).squeeze(-1).argmin()])
