"""Prompt centres: k-fold nearest-neighbour covering (Algorithm 1, step 1)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tokencover.covering.checks import check_count, check_pair
from tokencover.covering.exact import (
    cosine,
    keep_precision,
    mark_largest,
    rank_descending,
    to_float32,
)
from tokencover.covering.lazy import Cloud, Workspace

_MADE_EXACT_AT_ONCE = 64
"""Tokens made exact at a time: few enough to stay in a processor's cache."""


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
        tokens = Cloud.of("visual", to_float32(visual).cpu())
        words = Cloud.of("prompt", to_float32(prompt).cpu())
        return choose_nearest(tokens, words, budget, fold).to(visual.device)


def choose_nearest(visual: Cloud, prompt: Cloud, budget: int, fold: int) -> Tensor:
    """Choose the visual tokens of one sample most aligned with the prompt, on a CPU.

    Parameters
    ----------
    visual, prompt : Cloud
        One sample's tokens.
    budget : int
        Kp, the largest number of centres. Fewer come back when the candidates, at most `fold` per
        prompt token, are fewer.
    fold : int
        k, how many nearest visual tokens each prompt token proposes.

    Returns
    -------
    Tensor
        Indices, best first, int64.
    """
    if budget == 0 or len(prompt.tokens) == 0:
        return torch.empty(0, dtype=torch.int64)
    space = Workspace.of_this_thread("start")
    estimate = visual.estimate_cosines(prompt.find_directions(), space=space).T
    fold = min(fold, estimate.shape[1])
    last = estimate.topk(fold, dim=1).values[:, -1:]
    shortlist = (estimate >= last - visual.doubt).any(0).nonzero().squeeze(-1)
    alignment = estimate.index_select(1, shortlist).double()
    unsure = _find_unsure(alignment, last, visual.doubt).nonzero().squeeze(-1)
    words, space = prompt.snap(), Workspace.of_this_thread("top")
    for block in unsure.split(_MADE_EXACT_AT_ONCE):
        alignment[:, block] = cosine(words, visual.snap(shortlist[block], space))
    order, available = rank_candidates(alignment, torch.tensor(fold), budget)
    return shortlist[order[: int(available)]]


def _find_unsure(alignment: Tensor, last: Tensor, doubt: float) -> Tensor:
    """Which candidates' estimates are too close to call: to a prompt token's last, or in rank."""
    at_the_edge = (alignment - last).abs_().le_(doubt).any(0)
    score, order = alignment.amax(0).sort()
    tight = score.diff() <= doubt
    none = tight.new_zeros(1)
    in_rank = torch.cat([none, tight]) | torch.cat([tight, none])
    return at_the_edge.index_put_((order,), in_rank, accumulate=True)


def rank_candidates(alignment: Tensor, fold: Tensor, budget: int) -> tuple[Tensor, Tensor]:
    """Rank the candidates by their best alignment with any prompt token.

    Each prompt token proposes its `fold` nearest visual tokens; the union of these is S_p'. A
    candidate's score is its largest cosine over all prompt tokens.

    Parameters
    ----------
    alignment : Tensor
        ``(..., l, n)`` cosines, -inf where the prompt or the visual token does not exist.
    fold : Tensor
        ``(...)`` int64, k of each sample.
    budget : int
        How many ranks are wanted.

    Returns
    -------
    order : Tensor
        ``(..., budget)`` indices, best first; meaningless from `available` on.
    available : Tensor
        ``(...)`` number of candidates.
    """
    proposed = mark_largest(alignment, fold.unsqueeze(-1)).any(-2)
    score = alignment.amax(-2).masked_fill(~proposed, -math.inf)
    return rank_descending(score)[..., :budget], proposed.sum(-1)
