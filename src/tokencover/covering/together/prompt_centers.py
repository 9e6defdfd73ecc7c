"""Prompt centers of a whole batch: estimates propose a shortlist, exact cosines rank it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tokencover.covering.exact import rank_candidates, snap
from tokencover.covering.together.directions import Directions, multiply

_SPARE = 64
"""Tokens on the shortlist beyond those that the prompt tokens may propose."""


def rank_prompt_centers(
    visual: Directions, prompt: Directions, folds: list[int], most: int, *, everything: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Rank what the prompt tokens of each sample propose.

    Parameters
    ----------
    visual, prompt : Directions
        V and P of every sample.
    folds, most : list of int, int
        k of every sample, and how many ranks are wanted, at least 1.
    everything : bool
        Compare all tokens exactly, for samples in which too many are alike.

    Returns
    -------
    order, available, proven : Tensor
        ``(b, at most most)`` int64, best first, meaningless from `available` on; ``(b,)`` number of
        candidates; ``(b,)`` bool, whether the shortlist held all that came into question.
    """
    exists = prompt.exists.unsqueeze(2) & visual.exists.unsqueeze(1)
    fold = torch.tensor(folds, device=exists.device)
    short, proven = _list_all(visual)
    if not everything:
        short, proven = _shorten(visual, prompt, exists, fold, max(folds))
    words = snap(prompt.tokens)
    alignment = visual.compare_exactly(short, words).mT
    here = exists.gather(2, short.unsqueeze(1).expand(-1, exists.shape[1], -1))
    alignment = alignment.masked_fill(~here, -math.inf)
    places, available = rank_candidates(alignment, fold, most)
    return short.gather(1, places), available, proven


def _list_all(visual: Directions) -> tuple[Tensor, Tensor]:
    batch, tokens = visual.exists.shape
    device = visual.exists.device
    everyone = torch.arange(tokens, device=device).expand(batch, -1)
    return everyone, torch.ones(batch, dtype=torch.bool, device=device)


def _shorten(
    visual: Directions, prompt: Directions, exists: Tensor, fold: Tensor, most: int
) -> tuple[Tensor, Tensor]:
    """The tokens that come nearest to being proposed, ascending, and whether they are enough."""
    tokens, words = visual.exists.shape[1], prompt.exists.shape[1]
    size = words * most + _SPARE
    if size >= tokens:
        return _list_all(visual)
    estimate = multiply(prompt.unit, visual.unit).masked_fill_(~exists, -math.inf)
    best = estimate.topk(min(most, tokens), dim=-1).values
    last_place = (fold.clamp(max=tokens) - 1).view(-1, 1, 1).expand(-1, words, 1)
    slack = (best.gather(2, last_place) - estimate).masked_fill_(~exists, math.inf).amin(1)
    short = slack.topk(size, largest=False).indices.sort().values
    return short, (slack <= visual.doubt).sum(-1) <= size
