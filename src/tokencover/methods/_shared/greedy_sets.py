"""Covers chosen greedily, one by one, the same on every device and in every batch.

A cover stands for all other tokens (facility location): a set covers token j as well as the most
similar of them does, and each step takes the token that adds most to what is covered in all, times
its saliency.

Ties go to the lowest index, and a tie must not hang on rounding. Similarities of a cover are whole
steps of a fixed grid: sums of whole numbers below 2**53 are exact in float64 in whatever order they
are added, so a gain is one well-defined number on every machine and in every batch, it may be
updated in place of being summed anew, and a tie is a tie. A score is one product of two float64
numbers, which IEEE arithmetic rounds the same everywhere.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tokencover.covering import compute_pairwise_cosines, rank_descending, select_largest, snap

STEPS = 2.0**32
"""Grid steps of similarity 1. A million tokens then gain at most 2**52 steps."""


def compare_in_steps(tokens: Tensor) -> Tensor:
    """Cosines of all pairs in whole grid steps; negative ones count as 0.

    Parameters
    ----------
    tokens : Tensor
        ``(n, d)``, any floating dtype.

    Returns
    -------
    Tensor
        ``(n, n)`` float64 holding whole numbers, symmetric; 0 for pairs with a zero token.
    """
    points = snap(tokens)
    return compute_pairwise_cosines(points).mul_(STEPS).round_().clamp_(min=0.0)


def choose_cover(similarity: Tensor, saliency: Tensor, count: int, alpha: float = 1.0) -> Tensor:
    """Choose tokens one by one, each for what it adds to the cover times its saliency.

    With c_j the similarity of token j to the nearest chosen one, 0 at first, the next token has
    the largest ``s_i**alpha * sum_j max(0, similarity_ij - c_j)``; the lowest index of equal ones.
    When no product is above 0, the most salient tokens that are left follow.

    Time and memory are O(n**2) at first; a step then costs n times the number of tokens that it
    covers better than before.

    Parameters
    ----------
    similarity : Tensor
        ``(n, n)`` float64, symmetric whole numbers from 0 to `STEPS`, see `compare_in_steps`.
    saliency : Tensor
        ``(n,)``, s, not negative.
    count : int
        How many to choose, all if there are fewer.
    alpha : float
        How much saliency counts; with 0 coverage alone does.

    Returns
    -------
    Tensor
        ``(min(count, n),)`` int64, in the order of the choice.
    """
    weight = _raise_to(saliency, alpha, like=similarity)
    gain, covered = similarity.sum(-1), torch.zeros_like(weight)
    chosen: list[int] = []
    while len(chosen) < count:
        # A chosen token covers nothing better than it did, so its gain is exactly 0.
        score = gain * weight
        best = int(select_largest(score))
        if score[best] <= 0:
            break
        chosen.append(best)
        gain -= _find_lost_gains(similarity, covered, similarity[best])
        covered = torch.maximum(covered, similarity[best])
    found = torch.tensor(chosen, dtype=torch.int64, device=similarity.device)
    return fill_up(found, saliency.to(similarity.device), count)


def _raise_to(saliency: Tensor, alpha: float, like: Tensor) -> Tensor:
    # Vectorised powers may round differently at the end of a tensor: equal ones must stay equal.
    powers = [value**alpha for value in saliency.tolist()]
    return torch.tensor(powers, dtype=like.dtype, device=like.device)


def _find_lost_gains(similarity: Tensor, covered: Tensor, newcomer: Tensor) -> Tensor:
    """By how much every gain falls when a token with these similarities is chosen, ``(n,)``."""
    better = newcomer > covered
    before = covered[better].unsqueeze(-1)
    rise = newcomer[better].unsqueeze(-1) - before
    reach = similarity[better].sub_(before).clamp_(min=0.0)
    return torch.minimum(reach, rise, out=reach).sum(0)


def fill_up(chosen: Tensor, score: Tensor, count: int) -> Tensor:
    """Complete a choice with the tokens of highest score among the others.

    Parameters
    ----------
    chosen : Tensor
        Int64, at most `count` tokens.
    score : Tensor
        ``(n,)``.
    count : int
        How many there should be, all if there are fewer.
    """
    order = rank_descending(score)
    others = order[~torch.isin(order, chosen)]
    return torch.cat([chosen, others[: count - len(chosen)]])
