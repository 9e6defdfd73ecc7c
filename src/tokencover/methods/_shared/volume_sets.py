"""Sets of large volume, chosen greedily: the likely sets of a determinantal point process.

Each step takes the token that multiplies the determinant of the chosen ones by most, and needs its
cosines with all tokens. One token at a time that is a reading of everything; so they are computed
for some tokens together, those that gain most at the time, which are likely to be chosen soon.

Ties go to the lowest index. Gains are compared on a grid that is coarser than the error of their
sums, so that a tie does not hang on rounding.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tokencover.covering import Points, cosine, select_largest

_STEP = 2.0**-36
"""Gains are compared in steps of this; the error of their updates is far below."""
_COMPARED_AT_ONCE = 48


def choose_volume(points: Points, quality: Tensor, count: int) -> Tensor:
    """The most likely set of a determinantal point process, chosen greedily.

    The kernel is ``L[i, j] = quality[i] * cos(i, j) * quality[j]``; the next token is the one that
    multiplies the determinant of the chosen ones by most. The Cholesky factor grows by one row with
    each of them.

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
    rows = _Rows(points)
    order: list[int] = []
    for step in range(count):
        comparable = (gain / _STEP).round_()
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
    """Cosines of tokens with all tokens, computed for some of them at a time."""

    def __init__(self, points: Points) -> None:
        self._points = points
        self._waiting: dict[int, Tensor] = {}

    def take(self, token: int, gain: Tensor) -> Tensor:
        """Those of one token, once; `gain` tells which are likely to be asked for next."""
        if token not in self._waiting:
            self._compare(token, gain)
        return self._waiting.pop(token)

    def _compare(self, token: int, gain: Tensor) -> None:
        likely = gain.clone()
        likely[[token, *self._waiting]] = -math.inf
        size = min(_COMPARED_AT_ONCE - 1, len(gain) - 1)
        others = likely.topk(size)
        some = others.indices[others.values > 0].tolist()
        tokens = torch.tensor([token, *some], device=gain.device)
        self._waiting |= zip(
            [token, *some], cosine(self._points[tokens], self._points), strict=True
        )
