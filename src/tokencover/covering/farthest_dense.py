"""Farthest point sampling for accelerators: Algorithm 1's loop, never waiting for the host.

Each new centre is compared with every token, as the paper writes it, but for a whole batch at once
and with tensor indices only: nothing in the loop reads a value back, so all kernels can be queued.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tokencover.covering.exact import Points, cosine, distance_to_nearest, mean_direction


def farthest_dense(points: Points, start: Tensor, count: int) -> Tensor:
    """Choose `count` tokens of one sample; same arguments and result as `farthest_lazy`."""
    size = points.square.shape[-1]
    batch = Points(points.grid.unsqueeze(0), points.square.unsqueeze(0))
    valid = torch.ones(1, size, dtype=torch.bool, device=points.square.device)
    everything = torch.ones(1, len(start), dtype=torch.bool, device=points.square.device)
    return farthest_batch(batch, valid, start.unsqueeze(0), everything, count)[0]


def farthest_batch(
    points: Points, valid: Tensor, start: Tensor, start_valid: Tensor, count: int
) -> Tensor:
    """Choose `count` tokens in every sample of a batch.

    Parameters
    ----------
    points : Points
        ``(b, n, d)``.
    valid : Tensor
        ``(b, n)`` bool, which tokens exist.
    start : Tensor
        ``(b, s)`` int64, indices of centres that are there already.
    start_valid : Tensor
        ``(b, s)`` bool, which of them exist.
    count : int
        Number of centres to add; the caller cuts what is more than a sample has.

    Returns
    -------
    Tensor
        ``(b, count)`` int64, in order of choice.
    """
    distance, ranking = _first_distances(points, valid, start, start_valid)
    order = torch.empty(*valid.shape[:1], count, dtype=torch.int64, device=valid.device)
    for step in range(count):
        pick = ranking.argmax(-1, keepdim=True)
        order[:, step : step + 1] = pick
        to_pick = distance_to_nearest(points, _take(points, pick))
        # A chosen token is excluded by -inf, never by its distance: identical tokens are at 0 too.
        distance = torch.minimum(distance, to_pick).scatter_(1, pick, -math.inf)
        ranking = distance
    return order


def _first_distances(
    points: Points, valid: Tensor, start: Tensor, start_valid: Tensor
) -> tuple[Tensor, Tensor]:
    """Distances to the starting centres, and what ranks the tokens for the very first pick."""
    excluded = ~valid
    if start.shape[1]:
        to_start = cosine(points, _take(points, start))
        to_start = to_start.masked_fill(~start_valid.unsqueeze(1), -math.inf)
        distance = (1.0 - to_start.amax(-1)).clamp_(min=0.0)
        taken = torch.zeros_like(excluded, dtype=torch.int64).scatter_add_(
            1, start, start_valid.to(torch.int64)
        )
        excluded = excluded | (taken > 0)
    else:
        distance = torch.full_like(points.square, math.inf)
    distance = distance.masked_fill(excluded, -math.inf)
    from_mean = -cosine(points, mean_direction(points, valid)).squeeze(-1)
    from_mean = from_mean.masked_fill(excluded, -math.inf)
    started = start_valid.any(-1, keepdim=True)
    return distance, torch.where(started, distance, from_mean)


def _take(points: Points, index: Tensor) -> Points:
    width = points.grid.shape[-1]
    grid = points.grid.gather(1, index.unsqueeze(-1).expand(-1, -1, width))
    return Points(grid, points.square.gather(1, index))
