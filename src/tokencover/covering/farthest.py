"""Visual centers: farthest point sampling (Algorithm 1, step 2).

On a CPU `search/` chooses them sample by sample, on an accelerator `together/` for a whole batch.
Both agree index for index with the loop that compares everything.
"""

from __future__ import annotations

from torch import Tensor

from tokencover.covering.checks import check_count, check_indices, check_tokens
from tokencover.covering.exact import keep_precision, on_cpu, to_float32
from tokencover.covering.search.scratch import on_one_thread
from tokencover.covering.search.search import search_farthest
from tokencover.covering.search.vectors import Distinct
from tokencover.covering.together import (
    Directions,
    choose_farthest_exactly,
    choose_farthest_together,
    keep_float32,
    read_together,
)


def farthest_points(visual: Tensor, *, budget: int, start: Tensor | None = None) -> Tensor:
    """Choose tokens one by one, each the farthest from all centers so far.

    The distance of a token to the centers S is min over s in S of (1 - cos). Without a starting
    center the first choice is the token farthest from the mean token. A greedy choice: its covering
    radius is at most twice the smallest possible one.

    Parameters
    ----------
    visual : Tensor
        ``(n, d)``.
    budget : int
        How many tokens to choose; at most the ``n - len(start)`` there are.
    start : Tensor, optional
        Int64 indices of centers to begin with; they are not chosen again.

    Returns
    -------
    Tensor
        Indices in order of choice, int64.
    """
    check_tokens("visual", visual)
    budget = check_count("budget", budget, 0)
    centers = check_indices("start", start, len(visual)).to(visual.device).unique()
    count = min(budget, len(visual) - len(centers))
    with keep_precision(visual.device):
        if on_cpu(visual):
            order = _choose_on_cpu(to_float32(visual), centers.cpu(), count)
            return order.to(visual.device)
        with keep_float32():
            tokens = Directions.of(visual.detach().unsqueeze(0))
            none = centers.new_empty(0)
            return _choose_on_accelerator(tokens, centers, count) if count else none


@on_one_thread
def _choose_on_cpu(visual: Tensor, centers: Tensor, count: int) -> Tensor:
    return search_farthest(Distinct.of("visual", visual), centers, count)


def _choose_on_accelerator(tokens: Directions, centers: Tensor, count: int) -> Tensor:
    """The same for a batch of one and at least one token to choose."""
    kept, counts = centers.new_tensor([len(centers)]), centers.new_tensor([count])
    order, proven = choose_farthest_together(
        tokens, centers.unsqueeze(0), kept, counts, most=count, fewest=len(centers)
    )
    [fit], [sure] = read_together(tokens.fit, proven)
    if not fit:
        return _choose_on_accelerator(tokens.rescale("visual"), centers, count)
    return order[0] if sure else choose_farthest_exactly(tokens, centers, count)
