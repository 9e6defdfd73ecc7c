"""Farthest point sampling by exact distances, for tokens too much alike for estimates.

The same search as in `search.py`, in exact arithmetic: bounds for all tokens, and rounds among
those that may be farthest. Only tokens that come into question are measured exactly; they are held
on the grid of `exact.py`, whose whole numbers float32 holds, and become float64 some at a time.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tokencover.covering.exact import Points, distances, find_largest
from tokencover.covering.search.estimate import Bounds, Centers, Cloud
from tokencover.covering.search.shortlist import choose_from_shortlist
from tokencover.covering.search.workspace import Workspace

_FEW, _MANY = 96, 384
"""Tokens compared at a time; doubled while that settles nothing."""
_MEASURED_AT_ONCE, _MARKED_AT_ONCE = 256, 2048


class ExactRounds:
    """Adds centres to some that are there, until there are `total`.

    Parameters
    ----------
    cloud : Cloud
        The ``n`` tokens.
    centers : Centers
        At least one.
    bounds : Bounds
        Estimates of the same.
    total : int
        How many centres there shall be.
    """

    def __init__(self, cloud: Cloud, centers: Centers, bounds: Bounds, total: int) -> None:
        self._cloud, self._centers, self._total = cloud, centers, total
        self._bounds = bounds
        self._grid = torch.empty_like(cloud.tokens)
        self._square = torch.empty(len(cloud), dtype=torch.float64)
        self._is_exact = torch.zeros(len(cloud), dtype=torch.bool)
        # Distances, or more than these: estimates admit how far they may be off.
        self._away = bounds.find_largest_distances()
        self._compared = len(centers)
        self._make_exact(centers.tokens)
        self._away[centers.tokens] = -math.inf

    def run(self) -> None:
        """Choose among the tokens that may be farthest; measure more where that fails."""
        size = _FEW
        while len(self._centers) < self._total:
            if self._choose(size):
                size = _FEW
            elif self._make_rivals_exact():
                continue
            elif size < _MANY:
                size *= 2
            elif self._compared < len(self._centers):
                self._measure_new_centers()
                size = _FEW
            else:  # more tokens are equally far than a round looks at: the first one is right
                self._add(find_largest(self._away).unsqueeze(0))

    def _make_rivals_exact(self) -> bool:
        """Measure what may be farther than all that is exact; returns whether there was any."""
        farthest = self._away.masked_fill(~self._is_exact, -math.inf).amax()
        rivals = ((self._away >= farthest) & ~self._is_exact).nonzero().squeeze(-1)
        self._make_exact(rivals)
        return len(rivals) > 0

    def _make_exact(self, tokens: Tensor) -> None:
        """Measure the exact distances of some tokens to all centres.

        Tokens whose first centre that may be nearest is the same are measured together: they lie in
        one cluster, and few other centres come into question for them.
        """
        if len(tokens) == 0:
            return
        self._is_exact[tokens] = True
        for some in tokens.split(_MEASURED_AT_ONCE):
            points = self._cloud.snap(some, Workspace.of_this_thread("near"))
            self._grid[some] = points.grid.float()
            self._square[some] = points.square
        parts = [self._bounds.mark_possible_nearest(some) for some in tokens.split(_MARKED_AT_ONCE)]
        near = torch.cat(parts)
        for rows in near.int().argmax(-1).argsort().split(_MEASURED_AT_ONCE):
            some = tokens[rows]
            columns = near.index_select(0, rows).any(0).nonzero().squeeze(-1)
            others = self._take(self._centers.tokens[columns])
            self._away[some] = distances(self._take(some), others).amin(-1)

    def _choose(self, size: int) -> bool:
        """One round; returns whether it found a centre."""
        size = min(size, len(self._away) - len(self._centers))
        tokens = self._away.topk(size).indices.sort().values
        self._make_exact(tokens[~self._is_exact[tokens]])
        points = self._take(tokens)
        away = self._away[tokens]
        if self._compared < len(self._centers):
            new = self._take(self._centers.tokens[self._compared :])
            away = torch.minimum(away, distances(points, new).amin(-1))
            self._away[tokens] = away
        limit = -float(self._away.index_fill(0, tokens, -math.inf).amax())
        if -float(away.amax()) >= limit:
            return False
        each_other = distances(points, points)
        most = self._total - len(self._centers)
        steps = choose_from_shortlist(-away, -each_other, most=most, limit=limit, doubt=0.0)
        chosen = torch.tensor([step[0] for step in steps])
        self._away[tokens] = torch.minimum(away, each_other.index_select(1, chosen).amin(-1))
        self._add(tokens[chosen])
        return True

    def _add(self, tokens: Tensor) -> None:
        self._centers.add(tokens)
        self._away[tokens] = -math.inf

    def _take(self, index: Tensor) -> Points:
        return Points(self._grid.index_select(0, index).double(), self._square[index])

    def _measure_new_centers(self) -> None:
        """Compare what is exact with the centres that were added since the last time."""
        new = self._take(self._centers.tokens[self._compared :])
        for some in self._is_exact.nonzero().squeeze(-1).split(_MEASURED_AT_ONCE):
            to_new = distances(self._take(some), new).amin(-1)
            self._away[some] = torch.minimum(self._away[some], to_new)
        self._away[self._centers.tokens] = -math.inf
        self._compared = len(self._centers)
