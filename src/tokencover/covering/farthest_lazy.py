"""Farthest point sampling for the CPU: look only at tokens that may be the farthest.

Algorithm 1 compares every token with every new centre, N * d work a centre. But a distance to the
nearest centre can only shrink when centres are added: an old distance is an upper bound, and most
tokens need never be looked at again (the accelerated greedy of Minoux, 1978). Three steps, from
cheap to exact:

1. float32 estimates to the starting centres, once for all tokens, bound every distance;
2. tokens whose bounds come to the top get new bounds from estimates to the newer centres;
3. the top of those gets exact distances, and whatever is then provably the farthest is chosen.

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
from tokencover.covering.workspace import Workspace

_FEWEST, _FEW, _MANY = 64, 160, 1024
"""How many bounds are renewed at a time: few at first, doubled while that settles nothing."""
_EXACT = 48
"""How many of the few become exact; that is enough as a rule."""

_Bound = tuple[float, int]
"""(-upper bound, token): sorts by falling bound, the lowest index first among equals."""
_NOTHING: _Bound = (math.inf, -1)
_PICKED = -1.0
"""Stands for the distance of a token that is a centre by now; true distances are not negative."""


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
    """Upper bounds on the distance of every token that was not chosen yet."""

    def __init__(self, cloud: Cloud, start: Tensor, count: int) -> None:
        self._cloud = cloud
        self._count = count
        self._start = start
        self._top_space, self._center_space, start_space = (
            Workspace.of_this_thread(name) for name in ("top", "centers", "start")
        )
        self._to_start = cloud.cosines(cloud.directions(start), space=start_space)
        bound = 1.0 - self._to_start.amax(-1) + cloud.error
        bound[start] = -math.inf
        ordered, tokens = bound.sort(descending=True, stable=True)
        sorted_bounds = zip((-ordered).tolist(), tokens.tolist(), strict=True)
        self._untouched: list[_Bound] = list(sorted_bounds)[: len(bound) - len(start)][::-1]
        self._renewed: list[_Bound] = []

        self._chosen: list[int] = []
        shape = (count, cloud.tokens.shape[-1])
        self._directions = start_space.empty("chosen", shape, torch.float32)

    def choose(self) -> list[int]:
        """All `count` tokens, in order of choice."""
        few = min(max(self._count, _FEWEST), _FEW)
        size, exact = few, _EXACT
        while len(self._chosen) < self._count:
            before = len(self._chosen)
            self._round(size, exact)
            if len(self._chosen) > before:
                size, exact = few, _EXACT
            else:  # exactness must spread to all, or the same few would come up for ever
                size = exact = min(2 * size, _MANY)
        return self._chosen

    def _round(self, size: int, exact: int) -> None:
        """Renew the largest bounds, make the top exact, choose as long as it is certain."""
        tokens, to_start, to_newer = self._estimates(self._pop(size))
        nearest = torch.maximum(to_start.amax(-1), to_newer.amax(-1))
        order = nearest.argsort(stable=True)
        top, rest = order[:exact], order[exact:]
        top = top[tokens[top].argsort()]
        self._push(tokens[rest].tolist(), (1.0 - nearest[rest] + self._cloud.error).tolist())

        points = self._cloud.points(tokens[top], self._top_space)
        centers = self._centers_near(to_start[top], to_newer[top])
        distance = distance_to_nearest(points, centers).tolist()
        self._choose_certain(tokens[top].tolist(), points, distance)

    def _choose_certain(self, tokens: list[int], points: Points, distance: list[float]) -> None:
        """Choose among tokens with exact distances while none outside can be farther."""
        apart = (1.0 - cosine(points, points)).clamp_(min=0.0).tolist()
        outside = self._largest_bound()
        picked: list[int] = []
        while len(self._chosen) + len(picked) < self._count:
            farthest = max(distance)
            best = distance.index(farthest)  # tokens ascend: the lowest index among equals
            if farthest == _PICKED or (-farthest, tokens[best]) > outside:
                break
            picked.append(tokens[best])
            distance = list(map(min, distance, apart[best]))
            distance[best] = _PICKED
        left = [place for place, value in enumerate(distance) if value != _PICKED]
        self._push([tokens[place] for place in left], [distance[place] for place in left])
        if picked:
            where = slice(len(self._chosen), len(self._chosen) + len(picked))
            self._directions[where] = self._cloud.directions(torch.tensor(picked))
            self._chosen += picked

    def _largest_bound(self) -> _Bound:
        fronts = self._renewed[:1] + self._untouched[-1:]
        return min(fronts, default=_NOTHING)

    def _pop(self, size: int) -> Tensor:
        """Take out the tokens with the largest bounds."""
        renewed, untouched = self._renewed, self._untouched
        tokens: list[int] = []
        while len(tokens) < size and (renewed or untouched):
            if untouched and (not renewed or untouched[-1] < renewed[0]):
                tokens.append(untouched.pop()[1])
            else:
                tokens.append(heapq.heappop(renewed)[1])
        return torch.tensor(tokens)

    def _push(self, tokens: Iterable[int], bounds: Iterable[float]) -> None:
        for token, bound in zip(tokens, bounds, strict=True):
            heapq.heappush(self._renewed, (-bound, token))

    def _estimates(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Estimated cosines of some tokens with the starting centres, and with the newer ones."""
        newer = self._directions[: len(self._chosen)]
        if len(newer) == 0:
            nothing = torch.full((len(tokens), 1), -math.inf)
            return tokens, self._to_start.index_select(0, tokens), nothing
        return (
            tokens,
            self._to_start.index_select(0, tokens),
            self._cloud.cosines(newer, tokens, self._top_space),
        )

    def _centers_near(self, to_start: Tensor, to_newer: Tensor) -> Points:
        """The centres that may be nearest to some of these tokens."""
        nearest = torch.maximum(to_start.amax(-1), to_newer.amax(-1)).unsqueeze(-1)
        floor = nearest - 2 * self._cloud.error
        near = [self._start[(to_start >= floor).any(0)]]
        if self._chosen:
            near.append(torch.tensor(self._chosen)[(to_newer >= floor).any(0)])
        return self._cloud.points(torch.cat(near), self._center_space)


def _farthest_from_mean(cloud: Cloud) -> int:
    """The first centre when there is none: the token farthest from the mean of all."""
    mean = mean_direction(cloud.points())
    direction = torch.nn.functional.normalize(mean.grid, dim=-1).float()
    estimate = cloud.cosines(direction).squeeze(-1)
    rivals = (estimate <= estimate.amin() + 2 * cloud.error).nonzero().squeeze(-1)
    return int(rivals[cosine(cloud.points(rivals), mean).squeeze(-1).argmin()])
