"""Visual centres: farthest point sampling (Algorithm 1, step 2).

On a CPU the search of `lazy/` finds the centres and, where tokens are too much alike for it, leaves
the rest to the loop below. On an accelerator that loop does all: each new centre is compared with
every token, as the paper writes it, but for a whole batch at once and with tensor indices only.
Nothing in it reads a value back, so all kernels can be queued. Both agree index for index.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tokencover.covering.checks import check_count, check_finite, check_tokens
from tokencover.covering.exact import (
    Points,
    cosine,
    distance_to_nearest,
    find_largest,
    keep_precision,
    mean_direction,
    snap,
    to_float32,
)
from tokencover.covering.lazy import Cloud, search_farthest
from tokencover.errors import InputError


def farthest_points(visual: Tensor, *, budget: int, start: Tensor | None = None) -> Tensor:
    """Choose tokens one by one, each the farthest from all centres so far.

    The distance of a token to the centres S is min over s in S of (1 - cos). Without a starting
    centre the first choice is the token farthest from the mean token. A greedy choice: its covering
    radius is at most twice the smallest possible one.

    Parameters
    ----------
    visual : Tensor
        ``(n, d)``.
    budget : int
        How many tokens to choose; at most the ``n - len(start)`` there are.
    start : Tensor, optional
        Indices of centres that are there already; they are not chosen again.

    Returns
    -------
    Tensor
        Indices in order of choice, int64.
    """
    check_tokens("visual", visual)
    budget = check_count("budget", budget, 0)
    centers = _check_start(start, visual)
    count = min(budget, len(visual) - len(centers))
    with keep_precision(visual.device):
        tokens = to_float32(visual)
        if tokens.device.type == "cpu":
            order = choose_farthest(Cloud.of("visual", tokens), centers.cpu(), count)
        else:
            check_finite("visual", tokens)
            order = choose_farthest_exactly(snap(tokens), centers, count)
    return order.to(visual.device)


def choose_farthest(cloud: Cloud, start: Tensor, count: int) -> Tensor:
    """Choose `count` tokens of one sample, on a CPU.

    Parameters
    ----------
    cloud : Cloud
        The ``n`` tokens.
    start : Tensor
        Indices of centres that are there already, perhaps none, int64.
    count : int
        At most ``n - len(start)``.

    Returns
    -------
    Tensor
        ``(count,)`` int64, in order of choice.
    """
    found = search_farthest(cloud, start, count)
    return found if len(found) == count else choose_the_rest(cloud, start, found, count)


def choose_the_rest(cloud: Cloud, start: Tensor, found: Tensor, count: int) -> Tensor:
    """Go on where `search_farthest` could not tell tokens apart, after those it has found.

    All tokens are compared with all centres, exactly. Parameters and result are those of
    `choose_farthest`; `found`, int64, are the first of its result.
    """
    left = count - len(found)
    points, centers = cloud.snap(), torch.cat([start, found])
    distance = distance_to_nearest(points, points[centers])
    distance[centers] = -1.0
    if distance.amax() == 0.0:  # copies of centres, and nothing else: all equally near
        rest = (distance == 0.0).nonzero().squeeze(-1)[:left]
    else:
        rest = choose_farthest_exactly(points, centers, left)
    return torch.cat([found, rest])


def choose_farthest_exactly(points: Points, start: Tensor, count: int) -> Tensor:
    """Choose `count` tokens of one sample by the loop below; otherwise as `choose_farthest`."""
    batch = Points(points.grid.unsqueeze(0), points.square.unsqueeze(0))
    valid = torch.ones(1, len(points), dtype=torch.bool, device=points.square.device)
    everything = torch.ones(1, len(start), dtype=torch.bool, device=points.square.device)
    return choose_farthest_together(batch, valid, start.unsqueeze(0), everything, count)[0]


def choose_farthest_together(
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
    distance, ranking = _measure_first_distances(points, valid, start, start_valid)
    order = torch.empty(*valid.shape[:1], count, dtype=torch.int64, device=valid.device)
    for step in range(count):
        pick = find_largest(ranking).unsqueeze(-1)
        order[:, step : step + 1] = pick
        to_pick = distance_to_nearest(points, _take(points, pick))
        # A chosen token is excluded by -inf, never by its distance: identical tokens are at 0 too.
        distance = torch.minimum(distance, to_pick).scatter_(1, pick, -math.inf)
        ranking = distance
    return order


def _measure_first_distances(
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


def _check_start(start: Tensor | None, visual: Tensor) -> Tensor:
    if start is None:
        return torch.empty(0, dtype=torch.int64, device=visual.device)
    if start.dim() != 1 or start.is_floating_point() or start.dtype == torch.bool:
        raise InputError(
            f"start must be a list of indices, (centres,) of integers; got {start.dtype} of "
            f"shape {tuple(start.shape)}."
        )
    centers: Tensor = start.to(visual.device, torch.int64).unique()
    if len(centers) and not 0 <= int(centers[0]) <= int(centers[-1]) < len(visual):
        raise InputError(
            f"start holds indices from {int(centers[0])} to {int(centers[-1])}, but there are "
            f"{len(visual)} tokens."
        )
    return centers
