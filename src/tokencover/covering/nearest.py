"""Prompt centers: k-fold nearest-neighbour covering (Algorithm 1, step 1)."""

from __future__ import annotations

import torch
from torch import Tensor

from tokencover.covering import tuning
from tokencover.covering.checks import check_count, check_pair
from tokencover.covering.exact import (
    cosine,
    keep_precision,
    on_cpu,
    rank_candidates,
    to_float32,
)
from tokencover.covering.search.scratch import ScratchBuffers, on_one_thread
from tokencover.covering.search.vectors import CosineEstimates, Distinct, Vectors
from tokencover.covering.together import (
    Directions,
    keep_float32,
    rank_prompt_centers,
    read_together,
)


def nearest_points(visual: Tensor, prompt: Tensor, *, budget: int, fold: int) -> Tensor:
    """Choose the visual tokens most aligned with the prompt, best first.

    Each prompt token proposes its `fold` nearest visual tokens; of all proposals the `budget` with
    the largest cosine to any prompt token remain.

    Parameters
    ----------
    visual, prompt : Tensor
        V ``(n, d)`` and P ``(l, d)``.
    budget : int
        Kp, how many tokens to choose; fewer come back when fewer are proposed.
    fold : int
        k.

    Returns
    -------
    Tensor
        Indices, int64.
    """
    check_pair(visual, prompt, ranks=(2,))
    budget, fold = check_count("budget", budget, 0), check_count("fold", fold, 1)
    with keep_precision(visual.device):
        if on_cpu(visual):
            order = _rank_on_cpu(to_float32(visual), to_float32(prompt), budget, fold)
            return order.to(visual.device)
        if budget == 0 or len(prompt) == 0:
            return torch.empty(0, dtype=torch.int64, device=visual.device)
        with keep_float32():
            pair = Directions.of(visual.detach()[None]), Directions.of(prompt.detach()[None])
            return _rank_on_accelerator(*pair, budget, fold)


@on_one_thread
def _rank_on_cpu(visual: Tensor, prompt: Tensor, budget: int, fold: int) -> Tensor:
    tokens, words = Distinct.of("visual", visual), Vectors.of("prompt", prompt)
    return choose_nearest(tokens, words, budget, fold)


def _rank_on_accelerator(visual: Directions, prompt: Directions, budget: int, fold: int) -> Tensor:
    order, available, proven = rank_prompt_centers(visual, prompt, [fold], budget)
    [fit], [count], [sure] = read_together(visual.fit & prompt.fit, available, proven)
    if not fit:
        rescaled = visual.rescale("visual"), prompt.rescale("prompt")
        return _rank_on_accelerator(*rescaled, budget, fold)
    if not sure:
        order, available, _ = rank_prompt_centers(visual, prompt, [fold], budget, everything=True)
        [[count]] = read_together(available)
    return order[0, :count]


def choose_nearest(visual: Distinct, prompt: Vectors, budget: int, fold: int) -> Tensor:
    """Choose the visual tokens of one sample most aligned with the prompt, on a CPU.

    Returns int64 indices, best first: `budget`, or as many as the prompt proposes.
    """
    if budget == 0 or len(prompt) == 0:
        return torch.empty(0, dtype=torch.int64)
    vectors, estimates = visual.vectors, CosineEstimates(visual.vectors)
    buffers = ScratchBuffers.of_this_thread("start")
    estimate = estimates.estimate(prompt.get_directions(), buffers=buffers).T
    if visual.has_copies:
        estimate = estimate.index_select(1, visual.slot)
    fold = min(fold, estimate.shape[1])
    last = estimate.topk(fold, dim=1).values[:, -1:]
    shortlist = (estimate >= last - estimates.tolerance).any(0).nonzero().squeeze(-1)
    alignment = estimate.index_select(1, shortlist).double()
    unclear = _mark_unclear(alignment, last, estimates.tolerance).nonzero().squeeze(-1)
    different, which = visual.slot[shortlist[unclear]].unique(return_inverse=True)
    words, buffers = prompt.snap(), ScratchBuffers.of_this_thread("top")
    blocks = different.split(tuning.CANDIDATE_BLOCK)
    exact = torch.cat([cosine(words, vectors.snap(block, buffers)) for block in blocks], dim=1)
    alignment[:, unclear] = exact[:, which]
    order, available = rank_candidates(alignment, torch.tensor(fold), budget)
    return shortlist[order[: int(available)]]


def _mark_unclear(alignment: Tensor, last: Tensor, tolerance: float) -> Tensor:
    """Which candidates are too close, by estimates, to a prompt token's last one or in rank."""
    at_the_edge = (alignment - last).abs_().le_(tolerance).any(0)
    score, order = alignment.amax(0).sort()
    tight = score.diff() <= tolerance
    none = tight.new_zeros(1)
    in_rank = torch.cat([none, tight]) | torch.cat([tight, none])
    return at_the_edge.index_put_((order,), in_rank, accumulate=True)
