"""The token that is farthest from its own nearest neighbour, where max-min diversity begins."""

from __future__ import annotations

import math

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
from tokencover.covering.lazy import Cloud

_ROWS_AT_ONCE = 512


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
        rivals = torch.arange(len(values), device=values.device)
        if on_cpu(tokens):
            cloud = Cloud.of("visual", values)
            nearest = _estimate_nearest_neighbours(cloud)
            rivals = (nearest <= nearest.amin() + cloud.doubt).nonzero().squeeze(-1)
        else:
            check_finite("visual", values)
        if len(rivals) == 1:
            return rivals.to(tokens.device)
        exact = [_find_nearest_neighbours(values, some) for some in rivals.split(_ROWS_AT_ONCE)]
        first = find_smallest(torch.cat(exact))
        return rivals[first].unsqueeze(0).to(tokens.device)


def _estimate_nearest_neighbours(cloud: Cloud) -> Tensor:
    """Estimated cosine of each token with the nearest other one, ``(n,)`` float32."""
    unit = cloud.find_directions()
    nearest = torch.full((len(cloud),), -math.inf)
    blocks = range(0, len(cloud), _ROWS_AT_ONCE)
    for first in blocks:
        rows = slice(first, first + _ROWS_AT_ONCE)
        for second in blocks[first // _ROWS_AT_ONCE :]:
            columns = slice(second, second + _ROWS_AT_ONCE)
            cosines = cloud.estimate_cosines(unit[columns], rows)
            if first == second:
                cosines.fill_diagonal_(-math.inf)
            torch.maximum(nearest[rows], cosines.amax(1), out=nearest[rows])
            torch.maximum(nearest[columns], cosines.amax(0), out=nearest[columns])
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
