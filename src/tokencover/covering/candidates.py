"""Which visual tokens the prompt proposes, from exact cosines (Algorithm 1, step 1)."""

from __future__ import annotations

import math

from torch import Tensor

from tokencover.covering.exact import mark_largest, rank_descending


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
