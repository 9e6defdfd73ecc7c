"""Visual centres: farthest point sampling (Algorithm 1, step 2).

On a CPU the search of `lazy/` finds them, sample by sample; on an accelerator `together/` chooses
for a whole batch. Both agree index for index with the loop that compares everything.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tokencover.covering.checks import check_count, check_tokens
from tokencover.covering.exact import keep_precision, on_cpu, to_float32
from tokencover.covering.search import Distinct, search_farthest, use_one_thread
from tokencover.covering.together import (
    Directions,
    choose_farthest_exactly,
    choose_farthest_together,
    keep_float32,
    read_together,
)
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
        if not on_cpu(visual):
            with keep_float32():
                cloud = Directions.of(visual.detach().unsqueeze(0))
                none = centers.new_empty(0)
                return _continue_on_accelerator(cloud, centers, count) if count else none
        with use_one_thread():
            tokens = Distinct.of("visual", to_float32(visual))
            order = search_farthest(tokens, centers.cpu(), count)
    return order.to(visual.device)


def _continue_on_accelerator(cloud: Directions, centers: Tensor, count: int) -> Tensor:
    """The same for a batch of one and at least one token to choose."""
    kept, counts = centers.new_tensor([len(centers)]), centers.new_tensor([count])
    order, proven = choose_farthest_together(
        cloud, centers.unsqueeze(0), kept, counts, most=count, fewest=len(centers)
    )
    [fit], [sure] = read_together(cloud.fit, proven)
    if not fit:
        return _continue_on_accelerator(cloud.rescale("visual"), centers, count)
    return order[0] if sure else choose_farthest_exactly(cloud, centers, count)


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
