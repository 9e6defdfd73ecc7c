"""Farthest point sampling for the CPU: compare only tokens that may be the farthest.

Algorithm 1 compares every token with every new center: N * d work per center. But the closeness to
the nearest center can only grow when centers are added, so an old one is a lower bound, and most
tokens need not be compared again (the accelerated greedy algorithm of Minoux, 1978). From cheap to
exact:

1. Float32 estimates to the starting centers, once for all tokens, bound every token (`bounds.py`).
2. The tokens with the smallest bounds are compared with the newer centers and with each other, and
   centers are chosen among them as long as no other token can be farther (`_Search._guess`).
3. Where estimates were too close, exact distances decide at the end (`find_first_mistake`): what
   was chosen before the first mistake is kept, and the search continues from there.
4. Where bounds are too old, all tokens are compared with the newer centers at once. Where too many
   tokens are rivals for one rank, exact distances decide about that rank (`_Search._decide`).
5. Where all remaining tokens are close to a center, the search continues with local estimates
   (`local.py`). Where these leave too many rivals as well, or guesses are wrong, it continues by
   exact distances (`exact_rounds.py`).

Copies of tokens take no part in this. The result equals that of comparing all with all, index for
index.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from tokencover.covering import tuning
from tokencover.covering.exact import (
    Points,
    cosine,
    distances,
    first_of_largest,
    select_largest,
    select_smallest,
    snap,
)
from tokencover.covering.search.bounds import Bounds, Centers, Step, choose_from_shortlist
from tokencover.covering.search.exact_rounds import ExactRounds
from tokencover.covering.search.local import refine
from tokencover.covering.search.scratch import ScratchBuffers
from tokencover.covering.search.vectors import CosineEstimates, Distinct, Estimates, Vectors


def search_farthest(tokens: Distinct, start: Tensor, count: int) -> Tensor:
    """Choose `count` tokens, each farthest from the centers in `start` and those chosen before it.

    `start` are int64 indices of the centers to begin with, perhaps none, and `count` is at most the
    number of other tokens. Returns int64 indices in order of choice.
    """
    if count == 0:
        return start.new_empty(0)
    if len(start) == 0:
        first = tokens.first[_select_farthest_from_mean(tokens)].unsqueeze(0)
        return torch.cat([first, search_farthest(tokens, first, count - 1)])
    if not tokens.has_copies:
        return search_distinct(tokens.vectors, start, count)
    begin = tokens.slot[start].unique()
    few = min(count, len(tokens.vectors) - len(begin))
    chosen = begin[:0]
    if few:
        chosen = _cut_at_zero(tokens.vectors, begin, search_distinct(tokens.vectors, begin, few))
    chosen = tokens.first[chosen]
    remaining = torch.ones(len(tokens), dtype=torch.bool)
    remaining[start] = remaining[chosen] = False
    rest = remaining.nonzero().squeeze(-1)[: count - len(chosen)]
    return torch.cat([chosen, rest])


def search_distinct(vectors: Vectors, start: Tensor, count: int) -> Tensor:
    """The same without a special treatment of copies, and with at least one center in `start`."""
    estimates = CosineEstimates(vectors)
    total = len(start) + count
    centers = Centers(estimates, start, total)
    _Search(centers, Bounds(estimates, centers), total).run()
    return centers.tokens[len(start) :]


def _cut_at_zero(vectors: Vectors, start: Tensor, chosen: Tensor) -> Tensor:
    """The first of the chosen tokens, those that were not at distance 0 when they were chosen."""
    before = torch.cat([start, chosen[:-1]])
    estimates = CosineEstimates(vectors)
    last = estimates.estimate(vectors.get_directions(before), chosen[-1:])
    if float(last.amax()) < 1.0 - estimates.tolerance:  # distances never grow
        return chosen
    points = vectors.snap(torch.cat([start, chosen]))
    apart = distances(points[len(start) :], points)
    later = torch.ones_like(apart, dtype=torch.bool).triu(len(start))
    at_zero = apart.masked_fill_(later, 1.0).amin(-1) == 0.0
    return chosen[: int(at_zero.int().argmax())] if at_zero.any() else chosen


def _select_farthest_from_mean(tokens: Distinct) -> int:
    """The first center if there is none: the token farthest from the mean of all."""
    vectors, estimates = tokens.vectors, CosineEstimates(tokens.vectors)
    number = tokens.slot.bincount(minlength=len(vectors)).double()
    blocks = torch.arange(len(vectors)).split(tuning.SUM_BLOCK)
    sums = [number[some].unsqueeze(0) @ vectors.snap(some).grid for some in blocks]
    mean = snap(torch.stack(sums).sum(0))
    direction = torch.nn.functional.normalize(mean.grid, dim=-1).float()
    estimate = estimates.estimate(direction).squeeze(-1)
    rivals = (estimate <= estimate.amin() + estimates.tolerance).nonzero().squeeze(-1)
    parts = [
        cosine(vectors.snap(some), mean).squeeze(-1) for some in rivals.split(tuning.SUM_BLOCK)
    ]
    return int(rivals[select_smallest(torch.cat(parts))])


class Candidate(NamedTuple):
    """A token that may be the right choice for the center at `rank`."""

    rank: int
    token: int


class _Search:
    """Adds centers until there are `total`."""

    def __init__(self, centers: Centers, bounds: Bounds, total: int) -> None:
        self._estimates: Estimates = bounds.estimates
        self._centers, self._bounds, self._total = centers, bounds, total
        self._candidates: list[Candidate] = []
        self._decided = 0

    @property
    def _wanted(self) -> int:
        return self._total - len(self._centers)

    def run(self) -> None:
        """Guess and prove as long as that helps; then use local estimates or exact distances."""
        can_guess = self._bounds_exceed(tuning.MIN_RESOLUTION * self._estimates.tolerance)
        mistakes = 0 if can_guess else tuning.MAX_MISTAKES + 1
        while self._wanted and mistakes <= tuning.MAX_MISTAKES:
            before = len(self._centers)
            if not self._guess_and_prove():
                mistakes += len(self._centers) - before < tuning.MISTAKE_PROGRESS
            elif self._wanted and (not self._bounds_exceed(math.inf) or not self._decide()):
                break
        if self._wanted and not self._refine():
            ExactRounds(self._centers, self._bounds, self._total).run()

    def _bounds_exceed(self, distance: float) -> bool:
        """Whether any distance may exceed this, or the one below which estimates are refined."""
        limit = min(distance, self._estimates.refined_below)
        return float(self._bounds.compute_distances().amax()) > limit

    def _decide(self) -> bool:
        """Select one center among many rivals by exact distances; False if that is too much work.

        Where a cluster has no center yet, all its tokens may be the farthest, and once one of them
        is chosen none is.
        """
        rivals = self._bounds.list_rivals()
        self._decided += len(rivals)
        if self._decided > tuning.DECIDED_FRACTION * len(self._estimates.vectors):
            return False
        points = self._estimates.vectors.snap(rivals, ScratchBuffers.of_this_thread("top"))
        near = self._bounds.mark_possible_nearest(rivals)
        _, away = _measure_distances(self._estimates.vectors, self._centers, points, near)
        pick = rivals[select_largest(away.amin(-1))].unsqueeze(0)
        self._bounds.renew(pick, torch.tensor([math.inf]))
        self._centers.add(pick)
        return True

    def _refine(self) -> bool:
        """Continue with local estimates; return whether there are any."""
        if self._estimates.refined_below < 0:
            return False
        if self._bounds_exceed(math.inf) and not self._bounds.is_fresh:
            self._bounds.refresh()  # old bounds may be too large
        refined = refine(self._centers, self._bounds)
        if refined is None:
            return False
        local, start = refined
        centers = Centers(local, self._centers.tokens, self._total)
        _Search(centers, Bounds(local, centers, start), self._total).run()
        self._centers.add(centers.tokens[len(self._centers) :])
        return True

    def _guess_all(self) -> None:
        """Guess among the tokens that may be the farthest; refresh all bounds when that fails."""
        few = min(max(self._wanted, tuning.POOL_MIN), tuning.POOL_START)
        everyone = len(self._estimates.vectors)
        size = few
        while self._wanted:
            before = len(self._centers)
            crowded = self._guess(self._bounds.list_smallest(size))
            if len(self._centers) > before:
                size = few
            elif crowded:
                return
            elif self._bounds.is_fresh:
                if size >= tuning.POOL_MAX:
                    return
                size *= 2
            elif size >= min(tuning.POOL_MAX, everyone // tuning.REFRESH_FRACTION):
                self._bounds.refresh()
                size = few
            else:
                size *= 2

    def _guess_and_prove(self) -> bool:
        """Add centers by estimates, up to the first mistake; return whether there was none."""
        bounds = self._bounds.copy()
        self._candidates.clear()
        self._guess_all()
        mistake = find_first_mistake(self._centers, self._bounds, self._candidates)
        if mistake is None:
            return True
        self._centers.cut(mistake.rank)
        self._centers.add(torch.tensor([mistake.token]))
        self._bounds.restore(bounds)
        return False

    def _guess(self, tokens: Tensor) -> bool:
        """Choose among some tokens (ascending), by estimates, until others may be farther.

        Return whether there were too many rivals for a single rank.
        """
        tolerance = self._estimates.tolerance
        buffers = ScratchBuffers.of_this_thread("pool")
        shape = (len(tokens), self._estimates.width)
        rows = self._estimates.get_rows(tokens, buffers.empty("rows", shape, torch.float32))
        nearest = self._bounds.estimate_nearest(tokens, rows)
        self._bounds.renew(tokens, nearest)
        limit = self._bounds.get_smallest_outside(tokens) - self._estimates.error
        smallest = float(nearest.amin())
        if int((nearest <= smallest + tolerance).sum()) > tuning.MAX_RIVALS:
            return True
        if smallest >= limit:
            return False
        rivals = (nearest < limit + tolerance).nonzero().squeeze(-1)  # the others are too near
        if len(rivals) < len(tokens):
            tokens, nearest, rows = tokens[rivals], nearest[rivals], rows.index_select(0, rivals)
        each_other = self._estimates.compare(rows, rows, buffers)
        steps = choose_from_shortlist(
            nearest,
            each_other,
            most=self._wanted,
            limit=limit,
            tolerance=tolerance,
            max_rivals=4.0 * tuning.MAX_RIVALS,
        )
        self._candidates += _list_candidates(steps, tokens.tolist(), len(self._centers))
        chosen = torch.tensor([step[0] for step in steps])
        nearest = torch.maximum(nearest, each_other.index_select(1, chosen).amax(-1))
        self._bounds.renew(tokens, nearest.index_fill_(0, chosen, math.inf))
        self._centers.add(tokens[chosen])
        return False


def _list_candidates(steps: list[Step], tokens: list[int], before: int) -> list[Candidate]:
    """All tokens that came into question where a guess, after `before` centers, was not clear."""
    return [
        Candidate(rank, tokens[rival])
        for rank, step in enumerate(steps, before)
        if len(step) > 1
        for rival in step
    ]


def find_first_mistake(
    centers: Centers, bounds: Bounds, candidates: list[Candidate]
) -> Candidate | None:
    """What should have been chosen where first something else was; None if all is right.

    `candidates` has, by rising rank, each unclear center and all its rivals. Right is the token
    farthest from all centers before it, by exact distances and the tie rule of `exact.py`.
    """
    rivals: dict[int, list[tuple[float, int]]] = {}
    exact = _measure_candidates(centers, bounds, candidates) if candidates else []
    for (rank, token), distance in zip(candidates, exact, strict=True):
        rivals.setdefault(rank, []).append((distance, token))
    chosen = centers.tokens.tolist()
    for rank, pairs in rivals.items():
        token = first_of_largest(pairs)
        if chosen[rank] != token:
            return Candidate(rank, token)
    return None


def _measure_candidates(
    centers: Centers, bounds: Bounds, candidates: list[Candidate]
) -> list[float]:
    """Each candidate's exact distance to the nearest of the centers before it."""
    vectors, tolerance = bounds.estimates.vectors, bounds.estimates.tolerance
    ranks, names = torch.tensor(candidates).T.contiguous()
    tokens, row = names.unique(return_inverse=True)
    near = _mark_possible_nearest(bounds.estimate(tokens), ranks, row, tolerance)
    points = vectors.snap(tokens, ScratchBuffers.of_this_thread("top"))
    columns, distance = _measure_distances(vectors, centers, points, near)
    column = torch.searchsorted(columns, ranks) - 1  # the last one before the unclear center
    exact: list[float] = distance.cummin(-1).values[row, column].tolist()
    return exact


def _mark_possible_nearest(
    closeness: Tensor, ranks: Tensor, row: Tensor, tolerance: float
) -> Tensor:
    """Which centers may be nearest to which tokens while these are candidates.

    `closeness` is ``(tokens, centers)``; `ranks` and `row`, ``(candidates,)`` int64, are the
    unclear center and the row of the token.
    """
    spans = torch.zeros(len(closeness), dtype=torch.int64)
    first = spans.scatter_reduce(0, row, ranks, "amin", include_self=False).unsqueeze(-1)
    last = spans.scatter_reduce(0, row, ranks, "amax", include_self=False).unsqueeze(-1)
    # A center that is not nearest when it is added, or at the first unclear rank, never will be.
    nearest_yet = closeness.cummax(-1).values
    nearest_yet = torch.maximum(nearest_yet, nearest_yet.gather(1, first - 1))
    return (closeness >= nearest_yet - tolerance) & (torch.arange(closeness.shape[1]) < last)


def _measure_distances(
    vectors: Vectors, centers: Centers, points: Points, near: Tensor
) -> tuple[Tensor, Tensor]:
    """Distances of m points to the centers marked in `near`, ``(m, centers)`` bool.

    Returns ``(c,)`` ranks of all centers that are near to any of the points, and ``(m, c)``
    float64 distances, inf for pairs that are not marked.
    """
    columns = near.any(0).nonzero().squeeze(-1)
    others = vectors.snap(centers.tokens[columns], ScratchBuffers.of_this_thread("near"))
    distance = distances(points, others)
    return columns, distance.masked_fill_(~near.index_select(1, columns), math.inf)
