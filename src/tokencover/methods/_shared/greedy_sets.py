"""Sets of tokens chosen greedily, one by one, the same on every device and in every batch.

Ties go to the lowest index and must not depend on rounding. Similarities of a cover are whole steps
of a fixed grid: float64 adds whole numbers below 2**53 exactly in any order. Gains of a volume are
compared on a grid coarser than their error.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tokencover.covering import (
    Points,
    compute_pairwise_cosines,
    cosine,
    rank_descending,
    select_largest,
    snap,
)

STEPS = 2.0**32
"""Grid steps of similarity 1. A million tokens gain at most 2**52 steps."""
_VOLUME_STEP = 2.0**-36
"""Grid of the gains of a volume, coarser than the error of their updates."""
_COMPARED_AT_ONCE = 48


def compare_in_steps(tokens: Tensor) -> Tensor:
    """Return cosines of all pairs of ``(n, d)`` in grid steps, ``(n, n)`` float64, at least 0."""
    points = snap(tokens)
    return compute_pairwise_cosines(points).mul_(STEPS).round_().clamp_(min=0.0)


def choose_cover(similarity: Tensor, saliency: Tensor, count: int, alpha: float = 1.0) -> Tensor:
    """Choose `count` tokens one by one by what each adds to the cover, times its saliency.

    With c_j the `similarity` (of `compare_in_steps`) of token j to the nearest chosen one, 0 at
    first, the next token has the largest ``s_i**alpha * sum_j max(0, similarity_ij - c_j)``. When
    no product is above 0, the most salient remaining tokens follow. `saliency` ``(n,)`` is not
    negative.
    """
    weight = _compute_powers(saliency, alpha, like=similarity)
    gain, covered = similarity.sum(-1), torch.zeros_like(weight)
    chosen: list[int] = []
    while len(chosen) < count:
        # A chosen token does not add to the cover any more: its gain is exactly 0.
        score = gain * weight
        best = int(select_largest(score))
        if score[best] <= 0:
            break
        chosen.append(best)
        gain -= _compute_gain_decrease(similarity, covered, similarity[best])
        covered = torch.maximum(covered, similarity[best])
    cover = torch.tensor(chosen, dtype=torch.int64, device=similarity.device)
    return fill_up(cover, saliency.to(similarity.device), count)


def _compute_powers(saliency: Tensor, alpha: float, like: Tensor) -> Tensor:
    # Vectorized powers may round differently at the end of a tensor: equal ones must stay equal.
    powers = [value**alpha for value in saliency.tolist()]
    return torch.tensor(powers, dtype=like.dtype, device=like.device)


def _compute_gain_decrease(similarity: Tensor, covered: Tensor, newcomer: Tensor) -> Tensor:
    """Return how much every gain falls when a token with these similarities is chosen, ``(n,)``."""
    better = newcomer > covered
    before = covered[better].unsqueeze(-1)
    rise = newcomer[better].unsqueeze(-1) - before
    reach = similarity[better].sub_(before).clamp_(min=0.0)
    return torch.minimum(reach, rise, out=reach).sum(0)


def fill_up(chosen: Tensor, score: Tensor, count: int) -> Tensor:
    """Append the tokens with the highest ``(n,)`` scores that are not chosen yet, up to `count`."""
    order = rank_descending(score)
    rest = order[~torch.isin(order, chosen)]
    return torch.cat([chosen, rest[: count - len(chosen)]])


def choose_volume(points: Points, quality: Tensor, count: int) -> Tensor:
    """Choose the likely set of a determinantal point process greedily, at most `count` tokens.

    The kernel is ``L[i, j] = quality[i] * cos(i, j) * quality[j]``, with quality ``(n,)`` float64
    in [0, 1]. Each step takes the token that multiplies the determinant by most; the Cholesky
    factor grows by one row. It stops when no token adds volume.
    """
    gain = quality.square() * (points.square > 0)
    factor = gain.new_zeros(count, len(gain))
    rows = _Rows(points)
    order: list[int] = []
    for step in range(count):
        comparable = (gain / _VOLUME_STEP).round_()
        pick = int(select_largest(comparable))
        if comparable[pick] <= 0:
            break
        row = rows.take(pick, gain) * (quality[pick] * quality)
        row -= factor[:step, pick] @ factor[:step]
        factor[step] = row.div_(gain[pick].sqrt())
        gain.addcmul_(row, row, value=-1)
        gain[pick] = -math.inf
        order.append(pick)
    return torch.tensor(order, dtype=torch.int64, device=quality.device)


class _Rows:
    """Cosines of tokens with all tokens, computed together for those likely to be chosen soon."""

    def __init__(self, points: Points) -> None:
        self._points = points
        self._waiting: dict[int, Tensor] = {}

    def take(self, token: int, gain: Tensor) -> Tensor:
        """Return the row of one token, once; `gain` shows which rows are likely to be read next."""
        if token not in self._waiting:
            self._compare(token, gain)
        return self._waiting.pop(token)

    def _compare(self, token: int, gain: Tensor) -> None:
        likely = gain.clone()
        likely[[token, *self._waiting]] = -math.inf
        size = min(_COMPARED_AT_ONCE - 1, len(gain) - 1)
        best = likely.topk(size)
        some = best.indices[best.values > 0].tolist()
        tokens = torch.tensor([token, *some], device=gain.device)
        self._waiting |= zip(
            [token, *some], cosine(self._points[tokens], self._points), strict=True
        )
