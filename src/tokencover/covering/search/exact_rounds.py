"""Farthest point sampling by exact distances, for tokens too much alike for estimates.

The same search as in `search.py`, in exact arithmetic: bounds for all tokens, and rounds among
those that may be the farthest. Only these are measured exactly. Their grid points are kept in
float32, which holds such integers, and become float64 a block at a time.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tokencover.covering import tuning
from tokencover.covering.exact import Points, distances, select_largest
from tokencover.covering.search.bounds import Bounds, Centers, choose_from_shortlist
from tokencover.covering.search.scratch import ScratchBuffers


class ExactRounds:
    """Adds centers to those present, until there are `total`."""

    def __init__(self, centers: Centers, bounds: Bounds, total: int) -> None:
        self._vectors = bounds.estimates.vectors
        self._centers, self._total = centers, total
        self._bounds = bounds
        self._grid = torch.empty_like(self._vectors.tokens)
        self._square = torch.empty(len(self._vectors), dtype=torch.float64)
        self._is_exact = torch.zeros(len(self._vectors), dtype=torch.bool)
        # Distances, or upper bounds on them where they are not exact.
        self._away = bounds.compute_distances()
        self._compared = len(centers)
        self._make_exact(centers.tokens)
        self._away[centers.tokens] = -math.inf

    def run(self) -> None:
        """Choose among the tokens that may be the farthest; measure more where that fails."""
        size = tuning.EXACT_POOL_MIN
        while len(self._centers) < self._total:
            if self._choose(size):
                size = tuning.EXACT_POOL_MIN
            elif self._make_rivals_exact():
                continue
            elif size < tuning.EXACT_POOL_MAX:
                size *= 2
            elif self._compared < len(self._centers):
                self._measure_new_centers()
                size = tuning.EXACT_POOL_MIN
            else:  # more tokens are equally far than a round compares: the first one is right
                self._add(select_largest(self._away).unsqueeze(0))

    def _make_rivals_exact(self) -> bool:
        """Measure what may be farther than all that is exact; return whether there was any."""
        farthest = self._away.masked_fill(~self._is_exact, -math.inf).amax()
        rivals = ((self._away >= farthest) & ~self._is_exact).nonzero().squeeze(-1)
        self._make_exact(rivals)
        return len(rivals) > 0

    def _make_exact(self, tokens: Tensor) -> None:
        """Measure the exact distances of some tokens to all centers.

        Tokens whose first possibly nearest center is the same are measured together: they are in
        one cluster, and few other centers come into question for them.
        """
        if len(tokens) == 0:
            return
        self._is_exact[tokens] = True
        for some in tokens.split(tuning.EXACT_BLOCK):
            points = self._vectors.snap(some, ScratchBuffers.of_this_thread("near"))
            self._grid[some] = points.grid.float()
            self._square[some] = points.square
        blocks = tokens.split(tuning.NEAREST_BLOCK)
        near = torch.cat([self._bounds.mark_possible_nearest(some) for some in blocks])
        for rows in near.int().argmax(-1).argsort().split(tuning.EXACT_BLOCK):
            some = tokens[rows]
            columns = near.index_select(0, rows).any(0).nonzero().squeeze(-1)
            others = self._get_points(self._centers.tokens[columns])
            self._away[some] = distances(self._get_points(some), others).amin(-1)

    def _choose(self, size: int) -> bool:
        """One round; return whether it added a center."""
        size = min(size, len(self._away) - len(self._centers))
        tokens = self._away.topk(size).indices.sort().values
        self._make_exact(tokens[~self._is_exact[tokens]])
        points = self._get_points(tokens)
        away = self._away[tokens]
        if self._compared < len(self._centers):
            new = self._get_points(self._centers.tokens[self._compared :])
            away = torch.minimum(away, distances(points, new).amin(-1))
            self._away[tokens] = away
        limit = -float(self._away.index_fill(0, tokens, -math.inf).amax())
        if -float(away.amax()) >= limit:
            return False
        each_other = distances(points, points)
        most = self._total - len(self._centers)
        steps = choose_from_shortlist(-away, -each_other, most=most, limit=limit, tolerance=0.0)
        chosen = torch.tensor([step[0] for step in steps])
        self._away[tokens] = torch.minimum(away, each_other.index_select(1, chosen).amin(-1))
        self._add(tokens[chosen])
        return True

    def _add(self, tokens: Tensor) -> None:
        self._centers.add(tokens)
        self._away[tokens] = -math.inf

    def _get_points(self, index: Tensor) -> Points:
        return Points(self._grid.index_select(0, index).double(), self._square[index])

    def _measure_new_centers(self) -> None:
        """Compare what is exact with the centers added since the last time."""
        new = self._get_points(self._centers.tokens[self._compared :])
        for some in self._is_exact.nonzero().squeeze(-1).split(tuning.EXACT_BLOCK):
            to_new = distances(self._get_points(some), new).amin(-1)
            self._away[some] = torch.minimum(self._away[some], to_new)
        self._away[self._centers.tokens] = -math.inf
        self._compared = len(self._centers)
