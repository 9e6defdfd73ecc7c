"""Visual centres: farthest point sampling (Algorithm 1, step 2)."""

from __future__ import annotations

import torch
from torch import Tensor

from tokencover.covering.checks import check_count, check_finite, check_tokens
from tokencover.covering.estimate import Cloud
from tokencover.covering.exact import snap
from tokencover.covering.farthest_dense import farthest_dense
from tokencover.covering.farthest_lazy import farthest_lazy
from tokencover.covering.precision import plain, undisturbed
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
    centers = _centers(start, visual)
    count = min(budget, len(visual) - len(centers))
    with undisturbed(visual.device):
        tokens = plain(visual)
        if tokens.device.type == "cpu":
            cloud = Cloud.of("visual", tokens)
            order = farthest_lazy(cloud, centers.cpu(), count)
        else:
            check_finite("visual", tokens)
            order = farthest_dense(snap(tokens), centers, count)
    return order.to(visual.device)


def _centers(start: Tensor | None, visual: Tensor) -> Tensor:
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
