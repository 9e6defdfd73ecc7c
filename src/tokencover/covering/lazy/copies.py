"""Tokens that are copies of each other: blank pages, padding, frames that do not change.

A copy is exactly as far from every centre as its first one, and at distance 0 as soon as that is
chosen. So copies are left out of the search, and come by index when all that is left is at 0.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tokencover.covering.exact import distances
from tokencover.covering.lazy.estimate import Cloud

_COMPARED_AT_ONCE, _MARKING_COLUMNS = 256, 8


def find_first_copies(cloud: Cloud) -> Tensor | None:
    """For each token the first one that it is a copy of, often itself; None if all differ.

    ``(n,)`` int64. Copies have equal marks (their norm and a few coordinates), so only tokens next
    to each other in order of their marks are compared; should others with the same mark lie between
    two copies, they count as different, which costs time and nothing else. Zero tokens are no
    copies: their distance is 1.
    """
    marks, order = _mark_tokens(cloud).sort(stable=True)
    alike = (marks.diff() == 0) & (cloud.inverse_norm[order[1:]] > 0)
    pairs = alike.nonzero().squeeze(-1)
    if len(pairs) == 0:
        return None
    tokens = cloud.tokens
    equal = [
        (tokens[order[some]] == tokens[order[some + 1]]).all(-1)
        for some in pairs.split(_COMPARED_AT_ONCE)
    ]
    pairs = pairs[torch.cat(equal)]
    if len(pairs) == 0:
        return None
    # The number of the run that each belongs to, in order of marks; its first has the lowest index.
    begins = torch.ones(len(order), dtype=torch.bool).index_fill_(0, pairs + 1, False)
    run = begins.cumsum(0) - 1
    first = torch.empty_like(order)
    first[order] = order[begins.nonzero().squeeze(-1)[run]]
    return first


def _mark_tokens(cloud: Cloud) -> Tensor:
    """A number for each token, the same for copies and rarely so for others, ``(n,)`` float64."""
    mark = cloud.inverse_norm.double()
    for column in range(0, cloud.width, max(1, cloud.width // _MARKING_COLUMNS)):
        mark = mark * math.e + cloud.tokens[:, column]
    return mark


def cut_at_zero(cloud: Cloud, start: Tensor, found: Tensor) -> Tensor:
    """The first of the tokens in `found` that were not at distance 0 when they were chosen."""
    if len(found) == 0:
        return found
    before = torch.cat([start, found[:-1]])
    last = cloud.estimate_cosines(cloud.find_directions(before), found[-1:])
    if float(last.amax()) < 1.0 - cloud.doubt:  # distances never grow
        return found
    points = cloud.snap(torch.cat([start, found]))
    apart = distances(points[len(start) :], points)
    later = torch.ones_like(apart, dtype=torch.bool).triu(len(start))
    at_zero = apart.masked_fill_(later, 1.0).amin(-1) == 0.0
    return found[: int(at_zero.int().argmax())] if at_zero.any() else found


def fill_by_index(chosen: Tensor, total: int, count: int) -> Tensor:
    """The first `count` of all tokens that are not chosen, ascending."""
    left = torch.ones(total, dtype=torch.bool).index_fill_(0, chosen, False)
    return left.nonzero().squeeze(-1)[:count]
