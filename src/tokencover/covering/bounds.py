"""How far every token can be from its nearest centre at most, by float32 estimates.

A distance to the nearest centre can only shrink when centres are added: the distance to some of
them bounds the distance to all. So bounds are made with the starting centres, or with all but a few
of them, and renewed with the others and those added since only where somebody asks.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tokencover.covering.centers import Centers
from tokencover.covering.estimate import Cloud
from tokencover.covering.workspace import Workspace

_STRIP = 48
"""Matrix libraries multiply by this many centres at a time; a part of that takes as long."""

Bound = tuple[float, int]
"""(-upper bound, token): sorts by falling bound, the lowest index first among equals."""


class Bounds:
    """Upper bounds on the distances of one sample's tokens to the centres, -inf for a centre.

    Parameters
    ----------
    cloud : Cloud
        The ``n`` tokens.
    centers : Centers
        At least one; those that are there now are the starting centres.
    """

    def __init__(self, cloud: Cloud, centers: Centers) -> None:
        self._cloud, self._centers = cloud, centers
        self._space, space = (Workspace.of_this_thread(name) for name in ("top", "start"))
        self._first = _share_for_everyone(len(centers))
        self._to_first = cloud.cosines(centers.directions[: self._first], space=space)
        self._bound = self._from_cosines(self._to_first.amax(-1))
        self._bound[centers.tokens] = -math.inf

    def largest(self, size: int) -> Tensor:
        """The tokens with the largest bounds, ascending; the lowest index first among equals.

        Fewer than `size` where fewer are left.
        """
        size = min(size, len(self._bound) - len(self._centers))
        last = self._bound.topk(size).values[-1]
        tokens = (self._bound >= last).nonzero().squeeze(-1)
        if len(tokens) == size:
            return tokens
        order = self._bound[tokens].argsort(descending=True, stable=True)
        return tokens[order[:size]].sort().values

    def renew(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Bound some tokens by all centres there are now.

        Returns
        -------
        cosines, nearest : Tensor
            ``(tokens, centres)`` and ``(tokens,)`` float32, the estimates and the largest of each.
        """
        cosines = self._to_first.index_select(0, tokens)
        others = self._centers.directions[self._first :]
        if len(others):
            to_others = self._cloud.cosines(others, tokens, self._space)
            cosines = torch.cat([cosines, to_others], dim=1)
        nearest = cosines.amax(-1)
        self._bound[tokens] = self._from_cosines(nearest)
        return cosines, nearest

    def take_out(self, tokens: Tensor) -> Bound:
        """Leave some tokens out; returns the largest bound of the others."""
        self._bound[tokens] = -math.inf
        value, token = self._bound.max(0)  # the lowest index among equals
        return -float(value), int(token)

    def put_back(self, tokens: Tensor, distance: Tensor) -> None:
        """Some of those taken out, with their distances (float64)."""
        self._bound[tokens] = distance

    def _from_cosines(self, nearest: Tensor) -> Tensor:
        return (1.0 - nearest + self._cloud.error).double()


def _share_for_everyone(centers: int) -> int:
    """With how many of the starting centres every token is compared: all, or all but a few."""
    whole_strips = centers - centers % _STRIP
    return whole_strips if 8 * whole_strips >= 7 * centers else centers
