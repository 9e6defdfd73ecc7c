"""Choices of two baselines by exact cosines.

DivPrune: the token farthest from its nearest neighbor, then farthest points. DART: the tokens least
similar to some pivots.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import torch
from torch import Tensor

from tokencover.covering import tuning
from tokencover.covering.checks import (
    Count,
    check_count,
    check_counts,
    check_finite,
    check_indices,
    check_pair,
    check_tokens,
)
from tokencover.covering.exact import (
    cosine,
    distances,
    keep_precision,
    on_cpu,
    rank_ascending,
    select_largest,
    select_smallest,
    snap,
    to_float32,
)
from tokencover.covering.mob import farthest_points
from tokencover.covering.search.scratch import (
    ScratchBuffers,
    count_threads,
    on_one_thread,
    run_in_pieces,
)
from tokencover.covering.search.search import search_farthest
from tokencover.covering.search.vectors import CosineEstimates, Distinct, Vectors


def select_most_isolated(tokens: Tensor) -> Tensor:
    """Select the token of ``(n, d)`` farthest from its nearest neighbor, ``(1,)`` int64.

    On a CPU estimates leave a few tokens, and exact cosines decide among these. O(n d) memory
    beside blocks of cosines.
    """
    check_tokens("visual", tokens)
    with keep_precision(tokens.device):
        values = to_float32(tokens)
        if on_cpu(tokens):
            return _select_on_cpu(values).to(tokens.device)
        check_finite("visual", values)
        everyone = torch.arange(len(values), device=values.device)
        return _select_exactly(values, everyone).to(tokens.device)


def select_diverse(tokens: Tensor, *, budget: int) -> Tensor:
    """Choose the most isolated token, then in turn the one farthest from all chosen (DivPrune).

    Returns `budget` int64 indices of tokens ``(n, d)``, at most n, in order of choice.
    """
    check_tokens("visual", tokens)
    budget = min(check_count("budget", budget, 1), len(tokens))
    if on_cpu(tokens) and len(tokens) <= tokens.shape[-1]:  # a table is no larger than the tokens
        with keep_precision(tokens.device):
            return _select_by_table(to_float32(tokens), budget).to(tokens.device)
    first = select_most_isolated(tokens)
    return torch.cat([first, farthest_points(tokens, budget=budget - 1, start=first)])


@on_one_thread
def _select_on_cpu(values: Tensor) -> Tensor:
    return _select_by_estimates(_estimate_diversity(values), None)


def _estimate_diversity(values: Tensor) -> CosineEstimates:
    return CosineEstimates(Vectors.of("visual", values), tuning.DIVERSE_CHUNK)


@on_one_thread
def _select_by_table(values: Tensor, budget: int) -> Tensor:
    """`select_diverse` from a table of all cosines, which the first choice needs anyway.

    Estimates choose as long as they are clear; exact distances decide between a few rivals. With
    more rivals the general search continues.
    """
    estimates = _estimate_diversity(values)
    table = torch.empty(len(values), len(values))
    chosen = torch.empty(budget, dtype=torch.int64)
    chosen[:1] = _select_by_estimates(estimates, table)
    nearest = torch.full((len(values),), -math.inf)
    for count in range(1, budget):
        last = chosen[count - 1]
        torch.maximum(nearest, table[last], out=nearest)
        nearest[last] = math.inf
        rivals = (nearest <= nearest.amin() + estimates.tolerance).nonzero().squeeze(-1)
        if len(rivals) == 1:
            chosen[count] = rivals
        elif len(rivals) <= tuning.DIVERSE_RIVALS:
            chosen[count] = _select_rival(estimates, table, chosen[:count], rivals)
        else:
            distinct = Distinct.of("visual", values)
            chosen[count:] = search_farthest(distinct, chosen[:count], budget - count)
            break
    return chosen


def _select_rival(
    estimates: CosineEstimates, table: Tensor, centers: Tensor, rivals: Tensor
) -> Tensor:
    """The one of some rivals farthest from all centers, by exact distances, a scalar."""
    closeness = table.index_select(0, rivals).index_select(1, centers)
    near = closeness >= closeness.amax(-1, keepdim=True) - estimates.tolerance
    nearest = centers[near.any(0)]
    buffers = ScratchBuffers.of_this_thread("top")
    points = estimates.vectors.snap(torch.cat([rivals, nearest]), buffers)
    away = distances(points[: len(rivals)], points[len(rivals) :])
    return rivals[select_largest(away.amin(-1))]


def _select_by_estimates(estimates: CosineEstimates, table: Tensor | None) -> Tensor:
    """The most isolated token, ``(1,)``; fills the `table` of all estimates, if given."""
    nearest = _estimate_nearest_neighbors(estimates, table)
    rivals = (nearest <= nearest.amin() + estimates.tolerance).nonzero().squeeze(-1)
    return rivals if len(rivals) == 1 else _select_exactly(estimates.vectors.tokens, rivals)


def _select_exactly(values: Tensor, rivals: Tensor) -> Tensor:
    """The most isolated of some tokens, ``(1,)``, by exact cosines."""
    blocks = rivals.split(tuning.DIVERSE_BLOCK)
    exact = torch.cat([_measure_nearest_neighbors(values, some) for some in blocks])
    return rivals[select_smallest(exact)].unsqueeze(0)


def _estimate_nearest_neighbors(estimates: CosineEstimates, table: Tensor | None) -> Tensor:
    """Estimated cosine of each token with the nearest other one, ``(n,)``; each pair once."""
    vectors, size = estimates.vectors, tuning.DIVERSE_BLOCK
    nearest = torch.full((len(vectors),), -math.inf)
    blocks = [slice(begin, begin + size) for begin in range(0, len(vectors), size)]
    pairs = [(rows, columns) for i, rows in enumerate(blocks) for columns in blocks[i:]]
    writing = threading.Lock()

    def compare(some: slice) -> None:
        buffers = ScratchBuffers.of_this_thread("pairs")
        for rows, columns in pairs[some]:
            tokens = vectors.get_tokens(columns)
            cosines = estimates.compare(vectors.get_tokens(rows), tokens, buffers)
            cosines.mul_(vectors.inverse_norm[columns]).mul_(vectors.get_scale(rows))
            if table is not None:
                table[rows, columns] = cosines
                table[columns, rows] = cosines.T
            if rows == columns:
                cosines.fill_diagonal_(-math.inf)
            with writing:
                torch.maximum(nearest[rows], cosines.amax(1), out=nearest[rows])
                torch.maximum(nearest[columns], cosines.amax(0), out=nearest[columns])

    threads = count_threads(len(vectors) ** 2 // 2 * vectors.width)
    run_in_pieces(compare, len(pairs), threads, smallest=1)
    return nearest


def _measure_nearest_neighbors(values: Tensor, some: Tensor) -> Tensor:
    """Exact cosine of some tokens with the nearest other one, ``(m,)`` float64."""
    points = snap(values[some])
    nearest = []
    for begin in range(0, len(values), tuning.DIVERSE_BLOCK):
        cosines = cosine(points, snap(values[begin : begin + tuning.DIVERSE_BLOCK]))
        own = some.unsqueeze(-1) - begin == torch.arange(cosines.shape[1], device=values.device)
        nearest.append(cosines.masked_fill_(own, -math.inf).amax(-1))
    return torch.stack(nearest).amax(0)


def select_least_similar(tokens: Tensor, own: Tensor, others: Tensor, shares: Count) -> Tensor:
    """Let each pivot in turn take the free tokens least similar to it, by exact cosines (DART).

    On a CPU estimates leave a few tokens, at the end of each pivot's turn, for exact cosines.

    Parameters
    ----------
    tokens : Tensor
        ``(n, d)``.
    own, others : Tensor
        The pivots: int64 indices of tokens that are not free, then vectors ``(m, d)``.
    shares : int or sequence of int
        How many tokens each pivot takes; the last ones take fewer if tokens run out.

    Returns
    -------
    Tensor
        Int64, in the order of the pivots, ascending for each of them.
    """
    check_pair(tokens, others, ranks=(2,))
    own = check_indices("own", own, len(tokens))
    shares = check_counts("shares", shares, 0, len(own) + len(others))
    with keep_precision(tokens.device):
        values, words = to_float32(tokens), to_float32(others)
        own = own.to(values.device)
        if on_cpu(tokens):
            return _select_in_turn_on_cpu(values, own, words, shares).to(tokens.device)
        check_finite("visual", values)
        check_finite("pivots", words)
        rows = _ExactRows(cosine(snap(torch.cat([values[own], words])), snap(values)))
        return _select_in_turn(rows, own, len(values), shares).to(tokens.device)


class _ExactRows:
    """Cosines of every pivot with every token, ``(pivots, n)`` float64."""

    def __init__(self, table: Tensor) -> None:
        self._table = table

    def select_least(self, pivot: int, free: Tensor, count: int) -> Tensor:
        """So many free tokens least similar to a pivot, ascending."""
        row = self._table[pivot].masked_fill(~free, torch.inf)
        return rank_ascending(row)[:count].sort().values


class _EstimatedRows:
    """The same by estimates, exact where these are not clear."""

    def __init__(self, vectors: Vectors, own: Tensor, words: Vectors) -> None:
        self._vectors, self._estimates = vectors, CosineEstimates(vectors)
        self._pivots = torch.cat([vectors.get_tokens(own), words.tokens])
        directions = torch.cat([vectors.get_directions(own), words.get_directions()])
        self._table = self._estimates.estimate(directions).T
        self._exact: _ExactRows | None = None

    def select_least(self, pivot: int, free: Tensor, count: int) -> Tensor:
        """So many free tokens least similar to a pivot, ascending."""
        if count == 0:
            return torch.empty(0, dtype=torch.int64)
        if self._exact is not None:
            return self._exact.select_least(pivot, free, count)
        row = self._table[pivot].masked_fill(~free, torch.inf)
        tolerance = self._estimates.tolerance
        last = row.kthvalue(count).values
        least = (row <= last + tolerance).nonzero().squeeze(-1)
        if len(least) == count:
            return least
        is_clear = row[least] < last - tolerance
        clear, unclear = least[is_clear], least[~is_clear]
        if len(unclear) * tuning.EXACT_PIVOT_FRACTION > len(row):
            self._exact = _ExactRows(cosine(snap(self._pivots), self._vectors.snap()))
            return self._exact.select_least(pivot, free, count)
        exact = cosine(snap(self._pivots[pivot : pivot + 1]), self._vectors.snap(unclear))
        more = unclear[rank_ascending(exact[0])[: count - len(clear)]]
        return torch.cat([clear, more]).sort().values


@on_one_thread
def _select_in_turn_on_cpu(
    values: Tensor, own: Tensor, words: Tensor, shares: Sequence[int]
) -> Tensor:
    rows = _EstimatedRows(Vectors.of("visual", values), own, Vectors.of("pivots", words))
    return _select_in_turn(rows, own, len(values), shares)


def _select_in_turn(
    rows: _ExactRows | _EstimatedRows, own: Tensor, count: int, shares: Sequence[int]
) -> Tensor:
    free = torch.ones(count, dtype=torch.bool, device=own.device)
    free[own] = False
    remaining = int(free.sum())
    taken = [own[:0]]
    for pivot, share in enumerate(shares):
        least = rows.select_least(pivot, free, min(share, remaining))
        free[least] = False
        remaining -= len(least)
        taken.append(least)
    return torch.cat(taken)
