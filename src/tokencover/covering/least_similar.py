"""Tokens least similar to some pivots, each of which takes its share in turn."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tokencover.covering.checks import check_finite, check_tokens
from tokencover.covering.exact import (
    Points,
    cosine,
    keep_precision,
    on_cpu,
    rank_ascending,
    snap,
    to_float32,
)
from tokencover.covering.search import Cloud, use_one_thread

_FEW = 8
"""Exact cosines of one token in so many are worth more than those of all."""


def take_least_similar(
    tokens: Tensor, own: Tensor, others: Tensor, shares: Sequence[int]
) -> Tensor:
    """Let each pivot in turn take the free tokens least similar to it, by exact cosines.

    On a CPU estimates leave a few tokens, at the end of each share, for exact cosines to decide.

    Parameters
    ----------
    tokens : Tensor
        ``(n, d)``.
    own : Tensor
        Int64, the first pivots: tokens that are not free.
    others : Tensor
        ``(m, d)``, the pivots that follow them.
    shares : sequence of int
        How many tokens each pivot takes; the last ones take fewer if tokens run out.

    Returns
    -------
    Tensor
        Int64, in the order of the pivots, ascending for each of them.
    """
    check_tokens("visual", tokens)
    with keep_precision(tokens.device):
        values, words = to_float32(tokens), to_float32(others)
        own = own.to(values.device)
        free = torch.ones(len(values), dtype=torch.bool, device=values.device)
        free[own] = False
        if on_cpu(tokens):
            with use_one_thread():
                rows = _EstimatedRows(Cloud.of("visual", values), own, Cloud.of("pivots", words))
                taken = _take_in_turn(rows, free, shares)
        else:
            check_finite("visual", values)
            check_finite("pivots", words)
            points = snap(values)
            pivots = snap(torch.cat([values[own], words]))
            taken = _take_in_turn(_ExactRows(cosine(pivots, points)), free, shares)
        return torch.cat(taken).to(tokens.device)


class _ExactRows:
    """Cosines of every pivot with every token, ``(pivots, n)`` float64."""

    def __init__(self, table: Tensor) -> None:
        self._table = table

    def find_least(self, pivot: int, free: Tensor, count: int) -> Tensor:
        """So many free tokens least similar to a pivot, ascending."""
        row = self._table[pivot].masked_fill(~free, torch.inf)
        return rank_ascending(row)[:count].sort().values


class _EstimatedRows:
    """The same by estimates, exact where these cannot tell."""

    def __init__(self, cloud: Cloud, own: Tensor, words: Cloud) -> None:
        directions = torch.cat([cloud.find_directions(own), words.find_directions()])
        self._cloud, self._own, self._words = cloud, own, words
        self._table = cloud.estimate_cosines(directions).T
        self._exact: _ExactRows | None = None

    def find_least(self, pivot: int, free: Tensor, count: int) -> Tensor:
        """So many free tokens least similar to a pivot, ascending."""
        if count == 0:
            return self._own[:0]
        if self._exact is not None:
            return self._exact.find_least(pivot, free, count)
        row = self._table[pivot].masked_fill(~free, torch.inf)
        last = row.kthvalue(count).values
        doubt = self._cloud.doubt
        least = (row <= last + doubt).nonzero().squeeze(-1)
        if len(least) == count:
            return least
        # Below the doubt about the last one there is none; at it, exact cosines decide.
        is_sure = row[least] < last - doubt
        unsure = least[~is_sure]
        if len(unsure) * _FEW > len(row):
            self._exact = _ExactRows(cosine(self._snap_pivots(slice(None)), self._cloud.snap()))
            return self._exact.find_least(pivot, free, count)
        exact = cosine(self._snap_pivots(slice(pivot, pivot + 1)), self._cloud.snap(unsure))
        sure = least[is_sure]
        more = unsure[rank_ascending(exact[0])[: count - len(sure)]]
        return torch.cat([sure, more]).sort().values

    def _snap_pivots(self, some: slice) -> Points:
        tokens, words = self._cloud.tokens.index_select(0, self._own), self._words.tokens
        return snap(torch.cat([tokens, words])[some])


def _take_in_turn(
    rows: _ExactRows | _EstimatedRows, free: Tensor, shares: Sequence[int]
) -> list[Tensor]:
    left = int(free.sum())
    taken = [free.new_zeros(0, dtype=torch.int64)]
    for pivot, share in enumerate(shares):
        found = rows.find_least(pivot, free, min(share, left))
        free[found] = False
        left -= len(found)
        taken.append(found)
    return taken
