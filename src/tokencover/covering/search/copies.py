"""Tokens that are copies of each other: blank pages, padding, frames that do not change.

A copy is exactly as near to every word as its first one, exactly as far from every centre, and at
distance 0 as soon as that is chosen. So copies are found before anything else is computed and take
no part in it; they come by index when all that is left is at 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tokencover.covering.exact import distances
from tokencover.covering.search.estimate import CHUNK, Cloud
from tokencover.covering.search.workspace import Workspace

_COMPARED_AT_ONCE, _MARKING_COLUMNS = 64, 8
_EIGHT_TRUE = 0x0101010101010101


@dataclass(frozen=True, slots=True)
class Distinct:
    """One sample's tokens, each of several copies once.

    Attributes
    ----------
    cloud : Cloud
        The ``m`` tokens that are copies of none before them.
    first : Tensor
        ``(m,)`` int64, ascending: which of the ``n`` tokens these are.
    place : Tensor
        ``(n,)`` int64: where in `cloud` each token, or its first copy, is.
    """

    cloud: Cloud
    first: Tensor
    place: Tensor

    @classmethod
    def of(cls, name: str, tokens: Tensor, chunk: int = CHUNK) -> Distinct:
        """Find copies among the tokens (``(n, d)`` float32); NaN and infinity are refused."""
        copy_of = find_first_copies(tokens)
        if copy_of is None:
            everyone = torch.arange(len(tokens))
            return cls(Cloud.of(name, tokens, chunk=chunk), everyone, everyone)
        first, place = copy_of.unique(return_inverse=True)
        return cls(Cloud.of(name, tokens.index_select(0, first), tokens, chunk), first, place)

    def __len__(self) -> int:
        return len(self.place)

    @property
    def has_copies(self) -> bool:
        """Whether there are fewer than all."""
        return len(self.first) < len(self.place)


def find_first_copies(tokens: Tensor) -> Tensor | None:
    """For each token the first one that it is a copy of, often itself; None if all differ.

    ``(n,)`` int64. Copies have equal marks (a few coordinates), so only tokens next to each other
    in order of their marks are compared; should others with the same mark lie between two copies,
    they count as different, which costs time and nothing else. Zero tokens are no copies: their
    distance is 1.
    """
    marks, order = _mark_tokens(tokens).sort(stable=True)
    alike = marks.diff() == 0
    if not alike.any():
        return None
    pairs = alike.nonzero().squeeze(-1)
    if not _are_repeated(tokens, order[pairs], order[pairs + 1]):
        blocks = pairs.split(_COMPARED_AT_ONCE)
        same = torch.cat([_compare_with_next(tokens, order, some) for some in blocks])
        pairs = pairs[same]
    no_mark = pairs[marks[pairs] == 0]
    if len(no_mark):
        zero = no_mark[~tokens[order[no_mark]].any(-1)]
        pairs = pairs[~torch.isin(pairs, zero)]
    if len(pairs) == 0:
        return None
    # The number of the run that each belongs to, in order of marks; its first has the lowest index.
    begins = torch.ones(len(order), dtype=torch.bool).index_fill_(0, pairs + 1, False)
    run = begins.cumsum(0) - 1
    first = torch.empty_like(order)
    first[order] = order[begins.nonzero().squeeze(-1)[run]]
    return first


def _are_repeated(tokens: Tensor, first: Tensor, second: Tensor) -> bool:
    """Whether the pairs are all copies, and lie side by side: equal frames, or a blank page.

    Nothing is gathered then, which takes a third of the time.
    """
    begin, step = int(first.amin()), int(second[0] - first[0])
    end = begin + len(first)
    if int(first.amax()) != end - 1 or not (second - first).eq(step).all():
        return False
    bits = _view_bits(tokens)
    return torch.equal(bits[begin:end], bits[begin + step : end + step])


def _compare_with_next(tokens: Tensor, order: Tensor, pairs: Tensor) -> Tensor:
    """Whether the tokens at some places of `order` are the same as the next, ``(pairs,)`` bool."""
    # In a run of copies a token is the next of one and has a next: it is read once.
    places, where = torch.cat([pairs, pairs + 1]).unique(return_inverse=True)
    space = Workspace.of_this_thread("top")
    shape = (len(places), tokens.shape[-1])
    rows = torch.index_select(
        tokens, 0, order[places], out=space.empty("rows", shape, torch.float32)
    )
    bits = _view_bits(rows)
    same = bits[1:] == bits[:-1]
    # Eight at a time takes a third of the time.
    eight = same.shape[1] % 8 == 0
    equal = same.view(torch.int64).amin(-1) == _EIGHT_TRUE if eight else same.all(-1)
    return equal[where[: len(pairs)]]


def _view_bits(rows: Tensor) -> Tensor:
    """The same numbers as whole ones, two in one if possible."""
    even = rows.shape[1] % 2 == 0 and rows.stride(0) % 2 == 0 and rows.storage_offset() % 2 == 0
    return rows.view(torch.int64 if even and rows.stride(1) == 1 else torch.int32)


def _mark_tokens(tokens: Tensor) -> Tensor:
    """A number for each token, the same for copies and rarely so for others, ``(n,)`` float64."""
    width = tokens.shape[-1]
    mark = torch.zeros(len(tokens), dtype=torch.float64)
    for column in range(0, width, max(1, width // _MARKING_COLUMNS)):
        mark = mark * math.e + tokens[:, column]
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
