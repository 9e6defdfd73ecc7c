"""Sets of tokens chosen greedily, one by one, the same on every device and in every batch.

Two aims. A cover stands for all other tokens (facility location): a set covers token j as well as
the most similar of them does, and each step takes the token that adds most to what is covered in
all, times its saliency. A set of large volume (a determinantal point process) has members that
differ: each step takes the token that multiplies the determinant by most.

Ties go to the lowest index, and a tie must not hang on rounding. Similarities of a cover are whole
steps of a fixed grid: sums of whole numbers below 2**53 are exact in float64 in whatever order they
are added, so a gain is one well-defined number on every machine and in every batch, it may be
updated in place of being summed anew, and a tie is a tie. A score is one product of two float64
numbers, which IEEE arithmetic rounds the same everywhere. Gains of volume are compared on a grid
that is coarser than the error of the sums.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tokencover.covering import (
    Points,
    cosine,
    find_largest,
    find_mutual_cosines,
    rank_descending,
    snap,
)

STEPS = 2.0**32
"""Grid steps of similarity 1. A million tokens then gain at most 2**52 steps."""
_VOLUME_STEP = 2.0**-36
"""Gains of volume are compared in steps of this; the error of their updates is far below."""
_TOKENS_OF_ONE, _LARGEST_TABLE = 24, 2**30
"""A table of all cosines pays with at most so many tokens for each that is chosen, and bytes."""


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
    return find_mutual_cosines(points).mul_(STEPS).round_().clamp_(min=0.0)


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
        best = int(find_largest(score))
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


def choose_volume(points: Points, quality: Tensor, count: int) -> Tensor:
    """The most likely set of a determinantal point process, chosen greedily.

    The kernel is ``L[i, j] = quality[i] * cos(i, j) * quality[j]``; the next token is the one that
    multiplies the determinant of the chosen ones by most. The Cholesky factor grows by one row with
    each of them. Cosines of all pairs are computed at first, if so many of them will be asked for
    that it pays and they fit.

    Parameters
    ----------
    points : Points
        ``(n, d)``, the tokens.
    quality : Tensor
        ``(n,)`` float64 in [0, 1].
    count : int
        How many to choose, at most n.

    Returns
    -------
    Tensor
        ``(at most count,)`` int64, in order of choice; it ends where no token adds volume.
    """
    gain = quality.square() * (points.square > 0)
    factor = gain.new_zeros(count, len(gain))
    pays = len(gain) <= _TOKENS_OF_ONE * count and 8 * len(gain) ** 2 <= _LARGEST_TABLE
    table = find_mutual_cosines(points) if pays else None
    order: list[int] = []
    for step in range(count):
        comparable = (gain / _VOLUME_STEP).round()
        pick = int(find_largest(comparable))
        if comparable[pick] <= 0:
            break
        cosines = cosine(points[pick : pick + 1], points)[0] if table is None else table[pick]
        row = cosines * quality[pick] * quality
        row -= factor[:step, pick] @ factor[:step]
        factor[step] = row / gain[pick].sqrt()
        gain = gain - factor[step].square()
        gain[pick] = -math.inf
        order.append(pick)
    return torch.tensor(order, dtype=torch.int64, device=quality.device)
