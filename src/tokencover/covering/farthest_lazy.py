"""Farthest point sampling for the CPU: look only at tokens that may be the farthest.

Algorithm 1 compares every token with every new centre, N * d work a centre. But a distance to the
nearest centre can only shrink when centres are added: an old distance is an upper bound, and most
tokens need never be looked at again (the accelerated greedy of Minoux, 1978). Three steps, from
cheap to exact:

1. float32 estimates to the starting centres, once for all tokens, bound every distance
   (`bounds.py`);
2. tokens whose bounds come to the top get new bounds from estimates to the newer centres;
3. the top of those gets exact distances, and whatever is then provably the farthest is chosen.

The result is the same as that of `farthest_dense.py`, index for index.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tokencover.covering.bounds import Bound, Bounds
from tokencover.covering.centers import Centers
from tokencover.covering.estimate import Cloud
from tokencover.covering.exact import Points, cosine, mean_direction
from tokencover.covering.workspace import Workspace

_FEWEST, _FEW, _MANY = 64, 192, 1024
"""How many bounds are renewed at a time: few at first, doubled while that settles nothing."""
_EXACT = 48
"""How many of the few become exact; that is enough as a rule."""

_PICKED = -1.0
"""Stands for the distance of a token that is a centre by now; true distances are not negative."""


def farthest_lazy(cloud: Cloud, centers: Centers, count: int) -> Tensor:
    """Choose `count` tokens, each farthest from `centers` and those chosen before it.

    Parameters
    ----------
    cloud : Cloud
        The ``n`` tokens of one sample.
    centers : Centers
        Those that are there already, perhaps none; with room for the new ones, which are added.
    count : int
        At most ``n - len(centers)``.

    Returns
    -------
    Tensor
        ``(count,)`` int64, in order of choice.
    """
    before = len(centers)
    if before == 0 and count > 0:
        first = torch.tensor([_farthest_from_mean(cloud)])
        centers.add(first, cloud.points(first))
    if len(centers) < before + count:
        _Search(cloud, centers, before + count).run()
    return centers.tokens[before:]


class _Search:
    """Adds centres until there are `total`."""

    def __init__(self, cloud: Cloud, centers: Centers, total: int) -> None:
        self._cloud, self._centers, self._total = cloud, centers, total
        self._bounds = Bounds(cloud, centers)
        self._space = Workspace.of_this_thread("top")

    def run(self) -> None:
        """Round after round; one that settles nothing is followed by a larger one."""
        wanted = self._total - len(self._centers)
        few = min(max(wanted + wanted // 4, _FEWEST), _FEW)
        size, exact = few, _EXACT
        while len(self._centers) < self._total:
            before = len(self._centers)
            self._round(size, exact)
            if len(self._centers) > before:
                size, exact = few, _EXACT
            else:  # exactness must spread to all, or the same few would come up for ever
                size = exact = min(2 * size, _MANY)

    def _round(self, size: int, exact: int) -> None:
        """Renew the largest bounds, make the top exact, choose as long as it is certain."""
        tokens = self._bounds.largest(size)
        cosines, nearest = self._bounds.renew(tokens)
        top = nearest.argsort(stable=True)[:exact].sort().values
        floor = nearest[top].unsqueeze(-1) - 2 * self._cloud.error
        near = (cosines[top] >= floor).any(0).nonzero().squeeze(-1)
        self._choose_certain(tokens[top], near)

    def _choose_certain(self, tokens: Tensor, near: Tensor) -> None:
        """Choose among some tokens (ascending) as long as none outside can be farther.

        `near` are the places of all centres that may be nearest to one of them.
        """
        points, apart, distance = self._exact(tokens, near)
        outside = self._bounds.take_out(tokens)
        most = self._total - len(self._centers)
        places, distance = _certain(tokens.tolist(), apart, distance, outside, most)
        picked = torch.tensor(places, dtype=torch.int64)
        self._centers.add(tokens[picked], points.select(picked))
        left = distance != _PICKED
        self._bounds.put_back(tokens[left], distance[left])

    def _exact(self, tokens: Tensor, near: Tensor) -> tuple[Points, Tensor, Tensor]:
        """Exact form of some tokens, their distances to each other and to the nearest centre."""
        shape = (len(tokens) + len(near), self._cloud.tokens.shape[1])
        grid = self._space.empty("both", shape, torch.float64)
        points = self._cloud.points(tokens, self._space, grid[: len(tokens)])
        centers = self._centers.points(near, self._space, grid[len(tokens) :])
        both = Points(grid, torch.cat([points.square, centers.square]))
        distance = (1.0 - cosine(points, both)).clamp_(min=0.0)
        apart, to_centers = distance.split([len(tokens), len(near)], dim=1)
        return points, apart, to_centers.amin(-1)


def _certain(
    tokens: list[int], apart: Tensor, distance: Tensor, outside: Bound, most: int
) -> tuple[list[int], Tensor]:
    """Choose at most `most` of some tokens (ascending), each farther than anything `outside`.

    `distance` is to the nearest centre, `apart` to each other. Returns the places of those chosen,
    in order of choice, and what is left of `distance` then.
    """
    # A list's numbers are much quicker to get at than a tensor's.
    rows, left = apart.tolist(), distance.tolist()
    chosen: list[int] = []
    while len(chosen) < most:
        farthest = max(left)
        best = left.index(farthest)  # tokens ascend: the lowest index among equals
        if farthest == _PICKED or (-farthest, tokens[best]) > outside:
            break
        chosen.append(best)
        left = list(map(min, left, rows[best]))
        left[best] = _PICKED
    return chosen, torch.tensor(left, dtype=torch.float64)


def _farthest_from_mean(cloud: Cloud) -> int:
    """The first centre when there is none: the token farthest from the mean of all."""
    mean = mean_direction(cloud.points())
    direction = torch.nn.functional.normalize(mean.grid, dim=-1).float()
    estimate = cloud.cosines(direction).squeeze(-1)
    rivals = (estimate <= estimate.amin() + 2 * cloud.error).nonzero().squeeze(-1)
    return int(rivals[cosine(cloud.points(rivals), mean).squeeze(-1).argmin()])
