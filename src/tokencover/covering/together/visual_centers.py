"""Visual centers of a whole batch: a loop by estimates, then a proof of all its steps at once.

The loop of Algorithm 1 runs on float32 estimates: a table of all cosines where that pays, else a
product with each new center. That is three to five kernels per center, without reading back. The
result is a guess; what follows makes it exact.

1. Tokens that came near to being chosen at any step are the candidates (`_select_candidates`).
2. Their exact distances, to each other and to the starting centers, are one product in float64.
   They give the right choice of every step, given the centers before it; this is repeated until
   the order no longer changes (`_correct_choices`). Then it is that of Algorithm 1 among the
   candidates: its first step is right, hence its second, and so on.
3. Estimates of all other tokens show that none was ever farther than the one chosen
   (`_estimate_others`).

Where a sample fails 2 or 3, `one_by_one.py` runs the loop in float64 for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from tokencover.covering.exact import (
    cosine,
    distances,
    select_largest,
    select_smallest,
    snap,
)
from tokencover.covering.together.directions import Directions, multiply, take_rows

_SPARE_CANDIDATES, _CANDIDATES_OF_ONE = 64, 2
"""How many tokens are measured exactly: the first number, plus the second per center."""
_ROUNDS = 6
"""How often choices are corrected: two tokens that change places need two, and all such pairs do it
at the same time."""
_LARGEST_TABLE = 2**30
_TOKENS_OF_ONE = 32
"""A table of all cosines pays while it has at most so many bytes, and so many tokens for each
center: a product of everything is about so much faster than reading all tokens again."""
_REPLAYED_AT_ONCE = 2**23
"""Cosines computed at a time."""
_MEAN_RIVALS = 64
_ROUNDING = 1e-12
"""More than float64 loses in the few sums of a comparison."""


def choose_farthest_together(
    cloud: Directions, start: Tensor, kept: Tensor, counts: Tensor, *, most: int, fewest: int
) -> tuple[Tensor, Tensor]:
    """Choose tokens in every sample of a batch, each farthest from all centers so far.

    Parameters
    ----------
    cloud : Directions
        The tokens.
    start, kept : Tensor
        ``(b, s)`` and ``(b,)`` int64: indices of centers to begin with, and how many of these
        count. A sample without any begins far from the mean of its tokens.
    counts : Tensor
        ``(b,)`` int64, how many to choose.
    most, fewest : int
        The largest of `counts`, at least 1, and the smallest of `kept`; or bounds of these.

    Returns
    -------
    order, proven : Tensor
        ``(b, most)`` int64, in order of choice, meaningless from a sample's count on; and
        ``(b,)`` bool: where False, the order is only a guess.
    """
    columns = torch.arange(start.shape[1], device=start.device)
    start_valid = columns < kept.unsqueeze(-1)
    if fewest:
        return _choose(cloud, start, start_valid, counts, most)
    first, sure = select_farthest_from_mean(cloud)
    alone = (kept == 0).unsqueeze(-1)
    start = torch.cat([first.unsqueeze(-1), start], dim=1)
    start_valid = torch.cat([alone, start_valid], dim=1)
    order, proven = _choose(cloud, start, start_valid, counts - alone.squeeze(-1).long(), most)
    begun = torch.cat([first.unsqueeze(-1), order], dim=1)[:, :most]
    return torch.where(alone, begun, order), proven & (sure | ~alone.squeeze(-1))


def _choose(
    cloud: Directions, start: Tensor, start_valid: Tensor, counts: Tensor, most: int
) -> tuple[Tensor, Tensor]:
    """The same, where each sample has a starting center; `start_valid` marks those that count."""
    table = _Table(cloud) if _table_pays(cloud, most) else None
    nearest = _estimate_nearest_start(cloud, table, start, start_valid)
    guess, lowest = _guess_order(cloud, table, nearest, most)
    candidates = _select_candidates(cloud, table, nearest, guess, lowest, counts)
    away, each_other = _measure_candidates(cloud, candidates, start, start_valid)
    places = torch.searchsorted(candidates, guess).clamp_(max=candidates.shape[1] - 1)
    places, distance, settled = _correct_choices(away, each_other, places)
    order = candidates.gather(1, places)
    others = _estimate_others(cloud, table, nearest, order, candidates)
    clear = distance > 1.0 + cloud.error + _ROUNDING - others
    wanted = torch.arange(most, device=counts.device) < counts.unsqueeze(-1)
    return order, ((settled & clear) | ~wanted).all(-1)


def _table_pays(cloud: Directions, most: int) -> bool:
    batch, tokens = cloud.exists.shape
    return tokens <= _TOKENS_OF_ONE * most and 4 * batch * tokens**2 <= _LARGEST_TABLE


class _Table:
    """Estimated cosines of all pairs of tokens; a token's own is infinite."""

    def __init__(self, cloud: Directions) -> None:
        self.cosines = multiply(cloud.unit, cloud.unit)
        self.cosines.diagonal(dim1=1, dim2=2).fill_(math.inf)


def _estimate_nearest_start(
    cloud: Directions, table: _Table | None, start: Tensor, start_valid: Tensor
) -> Tensor:
    """Estimated cosine of each token to the nearest starting center, ``(b, n)`` float32.

    Infinite for what cannot be chosen.
    """
    if table is not None:
        cosines = take_rows(table.cosines, start)
        cosines.masked_fill_(~start_valid.unsqueeze(-1), -math.inf)
        nearest = cosines.amax(1)
    else:
        units = cloud.take_units(start)
        parts = [
            multiply(rows, units).masked_fill_(~start_valid.unsqueeze(1), -math.inf).amax(-1)
            for rows in cloud.unit.split(_count_at_once(start), dim=1)
        ]
        nearest = torch.cat(parts, dim=1)
        own = torch.where(start_valid, math.inf, -math.inf).to(nearest.dtype)
        nearest.scatter_reduce_(1, start, own, "amax")
    return nearest.masked_fill_(~cloud.exists, math.inf)


def _guess_order(
    cloud: Directions, table: _Table | None, nearest: Tensor, most: int
) -> tuple[Tensor, Tensor]:
    """The loop by estimates: tokens, ``(b, most)``, and each one's cosine when it was chosen."""
    nearest = nearest.clone()
    batch, tokens = nearest.shape
    order = torch.empty(most, batch, dtype=torch.int64, device=nearest.device)
    lowest = torch.empty(most, batch, device=nearest.device)
    row = torch.empty_like(nearest)
    for step in range(most):
        torch.min(nearest, 1, out=(lowest[step], order[step]))
        pick = order[step].view(batch, 1, 1)
        if table is not None:
            torch.gather(table.cosines, 1, pick.expand(-1, 1, tokens), out=row.unsqueeze(1))
            torch.maximum(nearest, row, out=nearest)
        else:
            center = cloud.unit.gather(1, pick.expand(-1, 1, cloud.unit.shape[-1]))
            torch.bmm(cloud.unit, center.mT, out=row.unsqueeze(-1))
            # A center's cosine with itself is about 1: it comes again only when nothing is left.
            torch.maximum(nearest, row, out=nearest)
    return order.T.contiguous(), lowest.T.contiguous()


def _replay(
    cloud: Directions, table: _Table | None, nearest: Tensor, order: Tensor
) -> Iterator[tuple[slice, Tensor]]:
    """Estimated cosines to the nearest center before every step, for some tokens at a time.

    Yields the tokens and ``(b, steps, tokens)`` float32; inf for what was chosen by then.
    """
    size = _count_at_once(order)
    units = None if table is not None else cloud.take_units(order)
    for begin in range(0, nearest.shape[1], size):
        some = slice(begin, begin + size)
        if table is not None:
            rows = take_rows(table.cosines[:, :, some], order)
        elif units is not None:
            rows = multiply(units, cloud.unit[:, some])
            numbers = torch.arange(begin, begin + rows.shape[-1], device=order.device)
            rows.masked_fill_(order.unsqueeze(-1) == numbers, math.inf)
        before = torch.cat([nearest[:, some].unsqueeze(1), rows[:, :-1]], dim=1)
        yield some, before.cummax(1).values


def _count_at_once(columns: Tensor) -> int:
    """How many tokens may be compared with so many columns of every sample at a time."""
    return max(1, _REPLAYED_AT_ONCE // max(1, columns.numel()))


def _select_candidates(
    cloud: Directions,
    table: _Table | None,
    nearest: Tensor,
    order: Tensor,
    lowest: Tensor,
    counts: Tensor,
) -> Tensor:
    """The tokens that came nearest to being chosen at any step, ``(b, m)``, ascending."""
    tokens, most = nearest.shape[1], order.shape[1]
    size = _CANDIDATES_OF_ONE * most + _SPARE_CANDIDATES
    if size >= tokens:
        return torch.arange(tokens, device=order.device).expand(len(order), -1).contiguous()
    unwanted = torch.arange(most, device=counts.device) >= counts.unsqueeze(-1)
    lowest = lowest.masked_fill(unwanted, -math.inf).unsqueeze(-1)
    slack = [(before - lowest).amin(1) for _, before in _replay(cloud, table, nearest, order)]
    return torch.cat(slack, dim=1).topk(size, largest=False).indices.sort().values


def _measure_candidates(
    cloud: Directions, candidates: Tensor, start: Tensor, start_valid: Tensor
) -> tuple[Tensor, Tensor]:
    """Exact distances of the candidates to the nearest starting center, and to each other.

    ``(b, m)`` and ``(b, m, m)`` float64; -inf for what cannot be chosen, and on the diagonal.
    """
    points = cloud.snap(candidates)
    to_start = cosine(points, cloud.snap(start)).masked_fill_(~start_valid.unsqueeze(1), -math.inf)
    away = (1.0 - to_start.amax(-1)).clamp_(min=0.0)
    is_start = (candidates.unsqueeze(-1) == start.unsqueeze(1)) & start_valid.unsqueeze(1)
    never = is_start.any(-1) | ~cloud.exists.gather(1, candidates)
    each_other = distances(points, points)
    each_other.diagonal(dim1=1, dim2=2).fill_(-math.inf)
    return away.masked_fill_(never, -math.inf), each_other


def _correct_choices(
    away: Tensor, each_other: Tensor, places: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Correct a guess of ``(b, steps)`` places until nothing changes; see `_measure_candidates`.

    Returns ``(b, steps)`` each: the last choice, its distance when it was made, and whether it was
    the same the time before.
    """
    for _ in range(_ROUNDS):
        rows = take_rows(each_other, places)[:, :-1]
        before = torch.cat([away.unsqueeze(1), rows], dim=1).cummin(1).values
        found = select_largest(before)
        settled, places = found == places, found
    return places, before.gather(2, places.unsqueeze(-1)).squeeze(-1), settled


def _estimate_others(
    cloud: Directions, table: _Table | None, nearest: Tensor, order: Tensor, candidates: Tensor
) -> Tensor:
    """The smallest estimated cosine of all other tokens before every step, ``(b, steps)`` float32.

    Infinite if there are none.
    """
    if candidates.shape[1] == nearest.shape[1]:
        return torch.full(order.shape, math.inf, dtype=torch.float64, device=order.device)
    others = nearest.scatter(1, candidates, math.inf)
    lowest = [before.amin(-1) for _, before in _replay(cloud, table, others, order)]
    return torch.stack(lowest).amin(0).double()


def select_farthest_from_mean(cloud: Directions) -> tuple[Tensor, Tensor]:
    """The first center of a sample that has none: the token farthest from the mean of all.

    Returns ``(b,)`` int64, and ``(b,)`` bool whether it is proven.
    """
    sums = [points.grid.sum(1, keepdim=True) for points in cloud.snap_all()]
    mean = snap(torch.stack(sums).sum(0))
    direction = torch.nn.functional.normalize(mean.grid, dim=-1).float()
    estimate = multiply(cloud.unit, direction).squeeze(-1)
    estimate = estimate.masked_fill(~cloud.exists, math.inf)
    rivals = estimate <= estimate.amin(-1, keepdim=True) + cloud.doubt
    size = min(_MEAN_RIVALS, estimate.shape[1])
    some = estimate.topk(size, largest=False).indices.sort().values
    exact = cosine(cloud.snap(some), mean).squeeze(-1)
    exact = exact.masked_fill(~cloud.exists.gather(1, some), math.inf)
    first = some.gather(1, select_smallest(exact).unsqueeze(-1)).squeeze(-1)
    return first, rivals.sum(-1) <= size
