"""Max-min diversity: the token farthest from its own nearest neighbour, then farthest points."""

from __future__ import annotations

import math
import threading

import torch
from torch import Tensor

from tokencover.covering.checks import check_finite, check_tokens
from tokencover.covering.exact import (
    Points,
    cosine,
    find_smallest,
    keep_precision,
    on_cpu,
    snap,
    to_float32,
)
from tokencover.covering.farthest import farthest_points
from tokencover.covering.search import (
    Cloud,
    Distinct,
    TableCloud,
    Workspace,
    count_threads,
    do_in_pieces,
    search_among_different,
    search_farthest,
    use_one_thread,
)

_ROWS_AT_ONCE, _CHUNK = 192, 512
"""Larger chunks are quicker; there are so many products that this counts more than their error."""


def find_most_isolated(tokens: Tensor) -> Tensor:
    """The token whose cosine distance to its nearest neighbour is largest.

    On a CPU estimates leave a few tokens, each pair being compared once, and exact cosines decide
    among these. O(n d) memory beside blocks of cosines.

    Parameters
    ----------
    tokens : Tensor
        ``(n, d)``.

    Returns
    -------
    Tensor
        ``(1,)`` int64, the lowest index among equals.
    """
    check_tokens("visual", tokens)
    with keep_precision(tokens.device):
        values = to_float32(tokens)
        if on_cpu(tokens):
            with use_one_thread():
                found = _find_on_cpu(Cloud.of("visual", values, chunk=_CHUNK), None)
        else:
            check_finite("visual", values)
            found = _decide(values, torch.arange(len(values), device=values.device))
        return found.to(tokens.device)


def choose_diverse(tokens: Tensor, *, budget: int) -> Tensor:
    """Choose the most isolated token, then in turn the one farthest from all chosen.

    Parameters
    ----------
    tokens : Tensor
        ``(n, d)``.
    budget : int
        How many, at most n and at least 1.

    Returns
    -------
    Tensor
        Indices in order of choice, int64.
    """
    check_tokens("visual", tokens)
    if not on_cpu(tokens) or len(tokens) > tokens.shape[-1]:  # a table would be the larger one
        first = find_most_isolated(tokens)
        others = farthest_points(tokens, budget=budget - 1, start=first)
        return torch.cat([first, others])
    with keep_precision(tokens.device), use_one_thread():
        every = Distinct.of("visual", to_float32(tokens), _CHUNK)
        if every.has_copies:  # they are nearest to each other, which the table does not tell
            first = find_most_isolated(tokens).cpu()
            found = torch.cat([first, search_farthest(every, first, budget - 1)])
        else:
            cloud = every.cloud
            table = torch.empty(len(cloud), len(cloud))
            first = _find_on_cpu(cloud, table)
            others = search_among_different(TableCloud.of_table(table, cloud), first, budget - 1)
            found = torch.cat([first, others])
        return found.to(tokens.device)


def _find_on_cpu(cloud: Cloud, table: Tensor | None) -> Tensor:
    """The most isolated token, ``(1,)``; estimates of all cosines go to the `table`, if any."""
    nearest = _estimate_nearest_neighbours(cloud, table)
    rivals = (nearest <= nearest.amin() + cloud.doubt).nonzero().squeeze(-1)
    return rivals if len(rivals) == 1 else _decide(cloud.tokens, rivals)


def _decide(values: Tensor, rivals: Tensor) -> Tensor:
    """The most isolated of some tokens, ``(1,)``, by exact cosines."""
    exact = [_find_nearest_neighbours(values, some) for some in rivals.split(_ROWS_AT_ONCE)]
    return rivals[find_smallest(torch.cat(exact))].unsqueeze(0)


def _estimate_nearest_neighbours(cloud: Cloud, table: Tensor | None) -> Tensor:
    """Estimated cosine of each token with the nearest other one, ``(n,)`` float32."""
    tokens, scale = cloud.tokens, cloud.inverse_norm
    nearest = torch.full((len(cloud),), -math.inf)
    blocks = [slice(begin, begin + _ROWS_AT_ONCE) for begin in range(0, len(cloud), _ROWS_AT_ONCE)]
    pairs = [(rows, columns) for place, rows in enumerate(blocks) for columns in blocks[place:]]
    one_at_a_time = threading.Lock()

    def compare(some: slice) -> None:
        space = Workspace.of_this_thread("pairs")
        for rows, columns in pairs[some]:
            cosines = cloud.multiply(tokens[rows], tokens[columns], space)
            cosines.mul_(scale[columns]).mul_(scale[rows].unsqueeze(-1))
            if table is not None:
                table[rows, columns] = cosines
                table[columns, rows] = cosines.T
            if rows == columns:
                cosines.fill_diagonal_(-math.inf)
            with one_at_a_time:
                torch.maximum(nearest[rows], cosines.amax(1), out=nearest[rows])
                torch.maximum(nearest[columns], cosines.amax(0), out=nearest[columns])

    threads = count_threads(len(cloud) ** 2 // 2 * cloud.width)
    do_in_pieces(compare, len(pairs), threads, smallest=1)
    return nearest


def _find_nearest_neighbours(values: Tensor, some: Tensor) -> Tensor:
    """Exact cosine of some tokens with the nearest other one, ``(m,)`` float64."""
    points: Points = snap(values[some])
    nearest = []
    for begin in range(0, len(values), _ROWS_AT_ONCE):
        cosines = cosine(points, snap(values[begin : begin + _ROWS_AT_ONCE]))
        own = some.unsqueeze(-1) == torch.arange(
            begin, begin + cosines.shape[1], device=values.device
        )
        nearest.append(cosines.masked_fill_(own, -math.inf).amax(-1))
    return torch.stack(nearest).amax(0)
