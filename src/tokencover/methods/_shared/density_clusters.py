"""Recycling: dropped tokens that were nearly kept live on as the means of a few clusters.

SparseVLM clusters them by density peaks with k nearest neighbours (DPC-kNN). This file knows
nothing of models: counts and plain tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tokencover.covering import (
    compute_pairwise_sq_distances,
    keep_precision,
    rank_descending,
    select_smallest,
    to_float32,
)

_STEPS = 2.0**25
"""Steps of the grid that distances are measured on, for the longest of them. Sums of products of
such whole numbers stay below 2**53: float64 adds them exactly."""


@dataclass(frozen=True, slots=True)
class RecyclingPlan:
    """What becomes of the visual tokens at one stage.

    Attributes
    ----------
    kept : int
        Tokens that stay as they are.
    recycled : int
        Of the others, how many are clustered: those with the highest scores.
    clusters : int
        Into how many tokens; ``kept + clusters`` are there afterwards.
    """

    kept: int
    recycled: int
    clusters: int

    @property
    def left(self) -> int:
        """Tokens that are there afterwards."""
        return self.kept + self.clusters

    @classmethod
    def for_kept(cls, kept: int, present: int) -> RecyclingPlan:
        """Keep so many: of p dropped ones ``q = int(0.3 p) + 1`` make ``int(q / 10) + 1``."""
        if kept >= present:
            return cls(present, 0, 0)
        recycled = 3 * (present - kept) // 10 + 1
        return cls(kept, recycled, recycled // 10 + 1)

    @classmethod
    def for_left(cls, left: int, present: int) -> RecyclingPlan:
        """Keep as many as possible so that `left` are there afterwards, clusters included.

        Where the rule alone would make more clusters than `left` allows, one token is kept and the
        rest are clusters, fewer than the rule's.
        """
        if left >= present:
            return cls(present, 0, 0)
        for kept in range(left - 1, 0, -1):
            plan = cls.for_kept(kept, present)
            if plan.left == left:
                return plan
        plan = cls.for_kept(1, present)
        return cls(1, plan.recycled if left > 1 else 0, left - 1)


def find_density_peaks(points: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Cluster points around those that are dense and far from anything denser.

    With distances ``d_ij = |x_i - x_j| / sqrt(width)``, a point's density is ``rho_i = exp(-mean of
    d_ij^2)`` over its `count` nearest points, itself included; ``delta_i`` is the distance to the
    nearest denser point, or the largest of all distances if there is none. The points with the
    largest ``rho delta`` are centres, and every point belongs to the nearest centre.

    Among points of one density the lowest index counts as the denser, where others add random
    noise: so copies of a point never become two centres while there are other points.

    Parameters
    ----------
    points : Tensor
        ``(q, d)``.
    count : int
        Number of clusters and of nearest points, 1 to q.

    Returns
    -------
    centres : Tensor
        ``(count,)`` int64, largest ``rho delta`` first, ties by the lowest index.
    owner : Tensor
        ``(q,)`` int64, which of the centres each point belongs to.
    """
    with keep_precision(points.device):
        squares = _measure_pairs(to_float32(points))
        spread = squares.topk(count, dim=-1, largest=False).values.mean(-1)
        place = torch.arange(len(points), device=squares.device)
        tied = spread == spread.unsqueeze(-1)
        denser = (spread < spread.unsqueeze(-1)) | (tied & (place < place.unsqueeze(-1)))
        delta = squares.masked_fill(~denser, math.inf).amin(-1).clamp(max=squares.max())
        # The logarithm of rho delta has the same order, and does not vanish for distant points.
        centres = rank_descending(delta.log() / 2 - spread)[:count]
        owner = select_smallest(squares[:, centres])
        owner[centres] = torch.arange(count, device=owner.device)
    return centres.to(points.device), owner.to(points.device)


def _measure_pairs(points: Tensor) -> Tensor:
    """The square of ``d_ij`` for each pair, ``(q, q)`` float64; exactly 0 between copies.

    Seen from the first point, which takes off what all have in common, and on a grid, without
    which a product of matrices would leave copies at a distance from each other.
    """
    seen = points - points[:1]
    longest = float(torch.linalg.vector_norm(seen, dim=-1).max())
    step = 2.0 ** math.frexp(longest)[1] / _STEPS  # a power of two: dividing by it is exact
    grid = seen.div_(step).round_().double()
    return compute_pairwise_sq_distances(grid).mul_(step * step / points.shape[-1])


def average_clusters(points: Tensor, owner: Tensor, count: int) -> Tensor:
    """The mean of each cluster.

    Parameters
    ----------
    points : Tensor
        ``(q, d)``; gradients flow back to them.
    owner : Tensor
        ``(q,)`` int64, the cluster of each; every cluster has a point.
    count : int
        Number of clusters.

    Returns
    -------
    Tensor
        ``(count, d)`` of the type of the points, summed in float32.
    """
    members = (owner == torch.arange(count, device=owner.device).unsqueeze(-1)).float()
    with torch.autocast(points.device.type, enabled=False):
        means = members @ points.float() / members.sum(-1, keepdim=True)
    return means.to(points.dtype)
