"""Prompt centres: k-fold nearest-neighbour covering (Algorithm 1, step 1)."""

from __future__ import annotations

import torch
from torch import Tensor

from tokencover.covering.candidates import rank_candidates
from tokencover.covering.checks import check_count, check_pair
from tokencover.covering.exact import cosine, keep_precision, on_cpu, to_float32
from tokencover.covering.search import Cloud, Distinct, Workspace, use_one_thread
from tokencover.covering.together import (
    Directions,
    keep_float32,
    rank_prompt_centers,
    read_together,
)

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
        if not on_cpu(visual):
            if budget == 0 or len(prompt) == 0:
                return torch.empty(0, dtype=torch.int64, device=visual.device)
            with keep_float32():
                clouds = Directions.of(visual.detach()[None]), Directions.of(prompt.detach()[None])
                return _rank_on_accelerator(*clouds, budget, fold)
        with use_one_thread():
            tokens = Distinct.of("visual", to_float32(visual))
            words = Cloud.of("prompt", to_float32(prompt))
            return choose_nearest(tokens, words, budget, fold).to(visual.device)


def _rank_on_accelerator(visual: Directions, prompt: Directions, budget: int, fold: int) -> Tensor:
    """The same for batches of one."""
    order, available, proven = rank_prompt_centers(visual, prompt, [fold], budget)
    [fit], [count], [sure] = read_together(visual.fit & prompt.fit, available, proven)
    if not fit:
        rescaled = visual.rescale("visual"), prompt.rescale("prompt")
        return _rank_on_accelerator(*rescaled, budget, fold)
    if not sure:
        order, available, _ = rank_prompt_centers(visual, prompt, [fold], budget, everything=True)
        [[count]] = read_together(available)
    return order[0, :count]


def choose_nearest(visual: Distinct, prompt: Cloud, budget: int, fold: int) -> Tensor:
    """Choose the visual tokens of one sample most aligned with the prompt, on a CPU.

    Parameters
    ----------
    visual : Distinct
        One sample's visual tokens.
    prompt : Cloud
        Its prompt.
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
    space, cloud = Workspace.of_this_thread("start"), visual.cloud
    estimate = cloud.estimate_cosines(prompt.find_directions(), space=space).T
    if visual.has_copies:
        estimate = estimate.index_select(1, visual.place)
    fold = min(fold, estimate.shape[1])
    last = estimate.topk(fold, dim=1).values[:, -1:]
    shortlist = (estimate >= last - cloud.doubt).any(0).nonzero().squeeze(-1)
    alignment = estimate.index_select(1, shortlist).double()
    unsure = _find_unsure(alignment, last, cloud.doubt).nonzero().squeeze(-1)
    different, which = visual.place[shortlist[unsure]].unique(return_inverse=True)
    words, space = prompt.snap(), Workspace.of_this_thread("top")
    blocks = different.split(_MADE_EXACT_AT_ONCE)
    exact = torch.cat([cosine(words, cloud.snap(block, space)) for block in blocks], dim=1)
    alignment[:, unsure] = exact[:, which]
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
