"""Estimates for tokens that are close together: distances in coordinates around a center.

The error of an estimated cosine is some millionths whatever the cosine is, and tokens of one
cluster, or of a blank page, differ by no more than that. But the difference of two such tokens is
short, and the error of a product shrinks with its factors. Let r be a center in the same cluster,
u' = u - r and v' = v - r. Then 1 - cos(u, v) is u'.u'/2 + v'.v'/2 - u'.v' up to the lengths of u
and v, which are 1 except for the grid of `exact.py`. In a cluster of width 0.01 that is a hundred
times more precise.

This holds for tokens around the same center. Tokens around different centers count as far from
each other; `refine` proves that, or gives no local estimates.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tokencover.covering import tuning
from tokencover.covering.exact import RESOLUTION
from tokencover.covering.search.bounds import Bounds, Centers
from tokencover.covering.search.scratch import ScratchBuffers
from tokencover.covering.search.vectors import (
    ROUNDING,
    UNIT_ROUNDOFF,
    Estimates,
    Rows,
    Vectors,
    measure_norms,
    multiply,
)

_FAR = 4.0
"""More than any distance."""


class LocalEstimates(Estimates):
    """Minus the distances of tokens around the same reference; minus `_FAR` for other pairs.

    `references` are ``(neighborhoods, d)`` float64 on the grid, `home` is each token's
    neighborhood, ``(n,)`` int64: -1 for centers far from all other tokens. A row is the difference
    to the reference, half its squared length, and the neighborhood; rows are computed when needed.
    """

    def __init__(self, vectors: Vectors, references: Tensor, home: Tensor) -> None:
        self.vectors, self.references, self.home = vectors, references, home
        self.width = vectors.width + tuning.LOCAL_PADDING
        self.error = math.inf
        self.refined_below = -math.inf
        buffers = ScratchBuffers.of_this_thread("local")
        self._rows = buffers.empty("rows", (len(vectors), self.width), torch.float32)
        self._is_ready = torch.zeros(len(vectors), dtype=torch.bool)

    def get_rows(self, index: Tensor, out: Tensor | None = None) -> Tensor:
        """Rows of some tokens."""
        self._prepare(index)
        return torch.index_select(self._rows, 0, index, out=out)

    def estimate(
        self, others: Tensor, index: Rows | None = None, buffers: ScratchBuffers | None = None
    ) -> Tensor:
        """Minus the distances of some tokens, or all, to other rows."""
        everyone = torch.arange(len(self.vectors))
        index = everyone if index is None else index
        index = everyone[index] if isinstance(index, slice) else index
        out = None
        if buffers is not None:
            out = buffers.empty("rows", (len(index), self.width), torch.float32)
        return self.compare(self.get_rows(index, out), others, buffers)

    def compare(self, rows: Tensor, others: Tensor, buffers: ScratchBuffers | None) -> Tensor:
        """Minus the distance of each pair of rows."""
        width = self.vectors.width
        near = multiply(rows[:, :width], others[:, :width], buffers)
        near.sub_(rows[:, width : width + 1]).sub_(others[:, width])
        apart = rows[:, width + 1 : width + 2] != others[:, width + 1]
        return near.masked_fill_(apart, -_FAR)

    def to_distance(self, closeness: Tensor) -> Tensor:
        """Minus the closeness, rounded up."""
        return -closeness.double() * (1 + ROUNDING)

    def list_blocks(self, tokens: Tensor, others: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Of many pairs, those of the same neighborhood."""
        everyone = torch.arange(len(others))
        if len(tokens) * len(others) <= tuning.LOCAL_PAIRS:
            return [(tokens, everyone)]
        home, theirs = self.home[tokens], self.home[others]
        return [(tokens[home == one], everyone[theirs == one]) for one in home.unique()]

    def compute_radius(self) -> float:
        """The largest squared difference of a token to its reference."""
        for begin in range(0, len(self.vectors), tuning.LOCAL_BLOCK):
            some = slice(begin, begin + tuning.LOCAL_BLOCK)
            self._compute_rows(some, self._rows[some])
        self._is_ready.fill_(True)
        return float(2 * self._rows[:, self.vectors.width].amax())

    def _prepare(self, index: Tensor) -> None:
        """Compute the rows of some tokens, if they are missing."""
        missing = index[~self._is_ready[index]]
        if len(missing) == 0:
            return
        shape = (min(len(missing), tuning.LOCAL_BLOCK), self.width)
        rows = ScratchBuffers.of_this_thread("moved").empty("moved", shape, torch.float32)
        for some in missing.split(tuning.LOCAL_BLOCK):
            self._rows.index_copy_(0, some, self._compute_rows(some, rows[: len(some)]))
        self._is_ready[missing] = True

    def _compute_rows(self, some: Rows, rows: Tensor) -> Tensor:
        """Compute the rows of some tokens into `rows`."""
        home, width = self.home[some], self.vectors.width
        buffers = ScratchBuffers.of_this_thread("moved")
        grid = self.vectors.to_grid(some, buffers)
        reference = self.references
        if len(reference) > 1:
            out = buffers.empty("references", tuple(grid.shape), torch.float64)
            reference = torch.index_select(reference, 0, home.clamp(min=0), out=out)
        moved = rows[:, :width].copy_(grid.sub_(reference).mul_(1 / RESOLUTION))
        rows[:, width] = measure_norms(moved).square_().div_(2)
        rows[:, width + 1] = home
        if home.amin() < 0:
            rows[home < 0, : width + 1] = 0.0
        return rows


def refine(centers: Centers, bounds: Bounds) -> tuple[LocalEstimates, Tensor] | None:
    """Local estimates around some centers, if they are more precise, and bounds to start with.

    `bounds` must be those of cosines. The result's are ``(n,)`` float32, for `Bounds`.
    """
    cosines = bounds.estimates
    distance = bounds.compute_distances().index_fill_(0, centers.tokens, -math.inf)
    widest = float(distance.amax())
    if widest > tuning.LOCAL_DISTANCE:
        return None
    ranks = _choose_references(centers, bounds, distance, widest)
    home, radius = _settle(bounds.estimate_all(ranks).double(), distance, cosines.error)
    if home is None:
        return None
    references = cosines.vectors.snap(centers.tokens[ranks]).grid
    local = LocalEstimates(cosines.vectors, references, home)
    if widest < tuning.BLURRED * cosines.error:
        radius = local.compute_radius()
    local.error = _bound_local_error(cosines, radius)
    if local.error * tuning.MIN_GAIN >= cosines.error:
        return None
    return local, -(distance * (1 + ROUNDING)).float()


def _bound_local_error(cosines: Estimates, radius: float) -> float:
    """How far an estimated distance can be off; `radius` is the largest square of a difference.

    The products are those of cosine estimates, times the lengths of the factors. On the grid a
    token's length is off by up to half the diagonal of a cell. Exact distances themselves are
    rounded to float64.
    """
    off = math.sqrt(cosines.width) * UNIT_ROUNDOFF / 2
    return 1.01 * (radius * (cosines.error + 4 * off) + 2 * off**2) + 1e-15


def _choose_references(centers: Centers, bounds: Bounds, distance: Tensor, widest: float) -> Tensor:
    """Places of some centers that are near to all tokens and far from each other."""
    free = (distance > -math.inf).nonzero().squeeze(-1)
    ranks = bounds.get_near_centers(free, 1.0 - widest).unique()
    each_other = bounds.estimate(centers.tokens[ranks]).index_select(1, ranks)
    close = each_other >= 1.0 - tuning.JOINED * widest
    remaining = torch.ones(len(ranks), dtype=torch.bool)
    chosen = []
    while remaining.any():
        chosen.append(int(remaining.int().argmax()))
        remaining &= ~close[chosen[-1]]
        remaining[chosen[-1]] = False
    references: Tensor = ranks[torch.tensor(chosen)]
    return references


def _settle(cosines: Tensor, distance: Tensor, error: float) -> tuple[Tensor | None, float]:
    """Each token's neighborhood, and how wide these are; None if they are not far from each other.

    `cosines` are ``(n, neighborhoods)`` float64 estimates with this `error`, `distance` are the
    ``(n,)`` largest possible distances to the nearest center, -inf for centers.
    """
    error += ROUNDING
    widest, home = distance.amax(), cosines.argmax(-1)
    is_center = distance == -math.inf
    own = cosines.gather(1, home.unsqueeze(-1)).squeeze(-1)
    outer = (own - error).clamp_(-1, 1).acos_().masked_fill_(is_center, 0.0)
    # The widest angle of each neighborhood's tokens, and how near to them others may come.
    angle = torch.zeros(cosines.shape[1], dtype=torch.float64).scatter_reduce_(
        0, home, outer, "amax"
    )
    inner = (cosines + error).clamp_(-1, 1).acos_() - angle
    near = inner < (1 - widest).acos() + ROUNDING
    alone = is_center & ~near.gather(1, home.unsqueeze(-1)).squeeze(-1)
    near.scatter_(1, home.unsqueeze(-1), False)
    if near.any():
        return None, math.inf
    farthest = own.masked_fill(alone, 1.0).amin()
    return home.masked_fill(alone, -1), float(2 * (1 - farthest + error))
