"""The greedy set of largest volume on plain tensors, the same on every device and in every batch.

Tokens are taken one by one, each the one that adds most to what is there already. Ties go to the
lowest index, and a tie must not hang on rounding: what is compared is kept on a grid that is
coarser than the error of the sums.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tokencover.covering import Points, cosine

_VOLUME_STEP = 2.0**-36
"""Gains of volume are compared in steps of this; the error of their updates is far below."""


def greedy_volume(points: Points, quality: Tensor, count: int) -> Tensor:
    """The most likely set of a determinantal point process, chosen greedily.

    The kernel is ``L[i, j] = quality[i] * cos(i, j) * quality[j]``; the next token is the one that
    multiplies the determinant of the chosen ones by most. The Cholesky factor grows by one row with
    each of them; the whole kernel is never held.

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
    order: list[int] = []
    for step in range(count):
        comparable = (gain / _VOLUME_STEP).round()
        pick = int(comparable.argmax())
        if comparable[pick] <= 0:
            break
        row = cosine(points[pick : pick + 1], points)[0] * quality[pick] * quality
        row -= factor[:step, pick] @ factor[:step]
        factor[step] = row / gain[pick].sqrt()
        gain = gain - factor[step].square()
        gain[pick] = -math.inf
        order.append(pick)
    return torch.tensor(order, dtype=torch.int64, device=quality.device)
