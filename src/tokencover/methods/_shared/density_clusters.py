"""Recycling: dropped tokens with high scores are merged into a few cluster means.

SparseVLM clusters them by density peaks with k nearest neighbors (DPC-kNN).
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
"""Grid steps of the longest vector; float64 adds products of such whole numbers exactly."""


@dataclass(frozen=True, slots=True)
class RecyclingPlan:
    """How many visual tokens are kept and recycled at one stage, and into how many clusters."""

    kept: int
    recycled: int
    clusters: int

    @property
    def total(self) -> int:
        """Tokens that remain."""
        return self.kept + self.clusters

    @classmethod
    def for_kept(cls, kept: int, present: int) -> RecyclingPlan:
        """Keep so many: of p dropped ones ``q = int(0.3 p) + 1`` make ``int(q / 10) + 1``."""
        if kept >= present:
            return cls(present, 0, 0)
        recycled = 3 * (present - kept) // 10 + 1
        return cls(kept, recycled, recycled // 10 + 1)

    @classmethod
    def for_total(cls, total: int, present: int) -> RecyclingPlan:
        """Keep as many as possible, at least one, so that `total` tokens and clusters remain."""
        if total >= present:
            return cls(present, 0, 0)
        for kept in range(total - 1, 0, -1):
            plan = cls.for_kept(kept, present)
            if plan.total == total:
                return plan
        plan = cls.for_kept(1, present)
        return cls(1, plan.recycled if total > 1 else 0, total - 1)


def cluster_by_density(points: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Cluster points ``(q, d)`` around those that are dense and far from any denser point.

    With distances ``d_ij = |x_i - x_j| / sqrt(width)``, a point's density is ``rho_i = exp(-mean of
    d_ij^2)`` over its `count` nearest points, itself included; ``delta_i`` is the distance to the
    nearest denser point (of equals the lowest index is denser), or the largest distance. Returns
    the `count` points with the largest ``rho delta``, and the nearest of them for each point
    ``(q,)``.
    """
    with keep_precision(points.device):
        squares = _compute_sq_distances(to_float32(points))
        spread = squares.topk(count, dim=-1, largest=False).values.mean(-1)
        index = torch.arange(len(points), device=squares.device)
        tied = spread == spread.unsqueeze(-1)
        denser = (spread < spread.unsqueeze(-1)) | (tied & (index < index.unsqueeze(-1)))
        delta = squares.masked_fill(~denser, math.inf).amin(-1).clamp(max=squares.max())
        # The logarithm of rho delta has the same order, and does not vanish for distant points.
        centers = rank_descending(delta.log() / 2 - spread)[:count]
        owner = select_smallest(squares[:, centers])
        owner[centers] = torch.arange(count, device=owner.device)
    return centers.to(points.device), owner.to(points.device)


def _compute_sq_distances(points: Tensor) -> Tensor:
    """Compute ``d_ij`` squared, ``(q, q)`` float64, on a grid: exactly 0 between copies."""
    shifted = points - points[:1]
    longest = float(torch.linalg.vector_norm(shifted, dim=-1).max())
    step = 2.0 ** math.frexp(longest)[1] / _STEPS  # a power of two: dividing by it is exact
    grid = shifted.div_(step).round_().double()
    return compute_pairwise_sq_distances(grid).mul_(step * step / points.shape[-1])


def average_clusters(points: Tensor, owner: Tensor, count: int) -> Tensor:
    """Compute the mean of each cluster of ``(q, d)``, ``(count, d)``, summed in float32."""
    members = (owner == torch.arange(count, device=owner.device).unsqueeze(-1)).float()
    with torch.autocast(points.device.type, enabled=False):
        means = members @ points.float() / members.sum(-1, keepdim=True)
    return means.to(points.dtype)
