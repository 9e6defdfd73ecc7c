"""Farthest point sampling for the CPU: look only at tokens that may be the farthest.

Algorithm 1 compares every token with every new centre, N * d work a centre. But the cosine to the
nearest centre can only grow when centres are added: an old one is a lower bound, and most tokens
need never be looked at again (the accelerated greedy of Minoux, 1978). From cheap to exact:

1. float32 estimates to the starting centres, once for all tokens, bound every token
   (`estimate.py`);
2. those with the smallest bounds are compared with the newer centres and with each other, and
   centres are chosen among them as long as no token outside can be farther
   (`choose_from_shortlist`);
3. where estimates were too close to tell, exact distances decide at the end (`find_first_mistake`):
   what was chosen before the first mistake is kept, and the search goes on from there;
4. where bounds have grown too old to tell anything, all tokens are compared with the newer centres
   at once; where too many tokens are rivals for one place, exact distances decide about that place;
5. where all that is left lies close to a centre, the search begins again with finer estimates
   (`closer_look.py`); and where these, too, leave too many rivals, or guesses go wrong, it goes on
   by exact distances (`exact_rounds.py`).

Copies of tokens take no part in this (`copies.py`).

What is found is what comparing all with all would choose, index for index.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from tokencover.covering.exact import (
    Points,
    cosine,
    distances,
    find_largest,
    find_smallest,
    snap,
)
from tokencover.covering.search.closer_look import WIDEST, CloseBounds, CloseCloud, look_closely
from tokencover.covering.search.copies import Distinct, cut_at_zero, fill_by_index
from tokencover.covering.search.estimate import Bounds, Centers, Cloud
from tokencover.covering.search.exact_rounds import ExactRounds
from tokencover.covering.search.shortlist import Step, choose_from_shortlist
from tokencover.covering.search.table import TableCloud, choose_from_table
from tokencover.covering.search.thread_use import use_one_thread
from tokencover.covering.search.workspace import Workspace

_FEWEST, _FEW, _MANY = 64, 160, 640
"""How many tokens are compared at a time: about as many as are wanted, doubled while that settles
nothing."""
_SUMMED_AT_ONCE = 1024
_TOKENS_OF_ONE = 8
"""Comparing all with the new centres pays instead of comparing one in so many once more."""
_CROWD, _MISTAKES, _PROGRESS = 12, 1, 32
"""More rivals for one place, or more guesses that go wrong before so many centres, and estimates
are too coarse to be of use."""
_TOLD_APART = 32
"""Distances below so many times their doubt are guessed wrong too often."""
_DECIDED = 1.5
"""How many rivals may be measured exactly for a place of theirs, for each token there is."""


def search_farthest(tokens: Distinct, start: Tensor, count: int) -> Tensor:
    """Choose tokens, each farthest from the centres in `start` and those chosen before it.

    Parameters
    ----------
    tokens : Distinct
        The ``n`` tokens of one sample.
    start : Tensor
        Indices of centres that are there already, perhaps none, int64.
    count : int
        At most ``n - len(start)``.

    Returns
    -------
    Tensor
        ``(count,)`` int64, in order of choice.
    """
    if count == 0:
        return start.new_empty(0)
    if len(start) == 0:
        first = tokens.first[_find_farthest_from_mean(tokens)].unsqueeze(0)
        return torch.cat([first, search_farthest(tokens, first, count - 1)])
    if not tokens.has_copies:
        return search_among_different(tokens.cloud, start, count)
    begin = tokens.place[start].unique()
    few = min(count, len(tokens.cloud) - len(begin))
    alone = tokens.cloud
    found = (
        cut_at_zero(alone, begin, search_among_different(alone, begin, few)) if few else begin[:0]
    )
    found = tokens.first[found]
    rest = fill_by_index(torch.cat([start, found]), len(tokens), count - len(found))
    return torch.cat([found, rest])


def search_among_different(cloud: Cloud, start: Tensor, count: int) -> Tensor:
    """The same, for tokens that are taken to differ, and at least one centre."""
    with use_one_thread():
        centers = Centers(cloud, start, len(start) + count)
        _Search(cloud, centers, Bounds(cloud, centers), len(start) + count).run()
    return centers.tokens[len(start) :]


class _Search:
    """Adds centres until there are `total`."""

    def __init__(self, cloud: Cloud, centers: Centers, bounds: Bounds, total: int) -> None:
        self._cloud, self._centers, self._bounds, self._total = cloud, centers, bounds, total
        self._doubts: list[Candidate] = []
        self._decided = 0

    @property
    def _wanted(self) -> int:
        return self._total - len(self._centers)

    def run(self) -> None:
        """Guess and prove as long as that helps; then look closer, or choose by exact distances."""
        mistakes = 0 if self._can_tell_apart() else _MISTAKES + 1
        while self._wanted and mistakes <= _MISTAKES:
            before = len(self._centers)
            if not self._guess_and_prove():
                mistakes += len(self._centers) - before < _PROGRESS
            elif self._wanted and (self._is_close_by() or not self._decide()):
                break
        if self._wanted and not self._look_closely():
            ExactRounds(self._cloud.get_whole(), self._centers, self._bounds, self._total).run()

    def _can_tell_apart(self) -> bool:
        """Whether distances are large enough for these estimates."""
        return self._find_largest_distance() > min(_TOLD_APART * self._cloud.doubt, WIDEST)

    def _is_close_by(self) -> bool:
        """Whether a closer look would tell more."""
        return self._find_largest_distance() <= WIDEST

    def _find_largest_distance(self) -> float:
        """An upper bound for distances that estimates as usual give; infinite for finer ones."""
        if isinstance(self._cloud, CloseCloud):
            return math.inf
        return float(self._bounds.find_largest_distances().amax())

    def _decide(self) -> bool:
        """Find one centre among many rivals by exact distances; False if that is too much work.

        Where a cluster has no centre yet, all its tokens may be the farthest, and once one of them
        is chosen none is.
        """
        rivals = self._bounds.find_rivals()
        self._decided += len(rivals)
        if self._decided > _DECIDED * len(self._cloud):
            return False
        points = self._cloud.snap(rivals, Workspace.of_this_thread("top"))
        near = self._bounds.mark_possible_nearest(rivals)
        _, away = measure_distances(self._cloud, self._centers, points, near)
        pick = rivals[find_largest(away.amin(-1))].unsqueeze(0)
        self._bounds.renew(pick, torch.tensor([math.inf]))
        self._centers.add(pick)
        return True

    def _look_closely(self) -> bool:
        """Go on by finer estimates; returns whether there are any."""
        if isinstance(self._cloud, CloseCloud):
            return False
        if not self._is_close_by() and not self._bounds.is_fresh:
            self._bounds.refresh()  # old bounds may say more than there is
        found = look_closely(self._cloud.get_whole(), self._centers, self._bounds)
        if found is None:
            return False
        close, distance = found
        centers = Centers(close, self._centers.tokens, self._total)
        _Search(close, centers, CloseBounds(close, centers, distance), self._total).run()
        self._centers.add(centers.tokens[len(self._centers) :])
        return True

    def _guess_all(self) -> None:
        """Guess among the tokens that may be farthest; compare all anew when that fails."""
        few = min(max(self._wanted, _FEWEST), _FEW)
        if isinstance(self._cloud, TableCloud):
            few = len(self._cloud)  # it costs nothing to look at all
        size = few
        while self._wanted:
            before = len(self._centers)
            crowded = self._guess(self._bounds.find_smallest(size))
            if len(self._centers) > before:
                size = few
            elif crowded:
                return
            elif self._bounds.is_fresh:
                if size >= _MANY:
                    return
                size *= 2
            elif size >= min(_MANY, len(self._cloud) // _TOKENS_OF_ONE):
                self._bounds.refresh()
                size = few
            else:
                size *= 2

    def _guess_and_prove(self) -> bool:
        """Add centres by estimates, up to the first mistake; returns whether there was none."""
        bounds = self._bounds.copy()
        self._doubts.clear()
        self._guess_all()
        mistake = find_first_mistake(self._cloud, self._centers, self._bounds, self._doubts)
        if mistake is None:
            return True
        self._centers.cut(mistake.place)
        self._centers.add(torch.tensor([mistake.token]))
        self._bounds.restore(bounds)
        return False

    def _guess(self, tokens: Tensor) -> bool:
        """Choose among some tokens (ascending), by estimates, until others may be farther.

        Returns whether there were too many rivals for a single place.
        """
        doubt = self._cloud.doubt
        space = Workspace.of_this_thread("pool")
        shape = (len(tokens), self._cloud.width)
        rows = self._cloud.find_directions(tokens, space.empty("rows", shape, torch.float32))
        nearest = self._bounds.estimate_nearest(tokens, rows)
        self._bounds.renew(tokens, nearest)
        limit = self._bounds.find_smallest_without(tokens) - self._cloud.error
        smallest = float(nearest.amin())
        if int((nearest <= smallest + doubt).sum()) > _CROWD:
            return True
        if smallest >= limit:
            return False
        rivals = (nearest < limit + doubt).nonzero().squeeze(-1)  # the others are too near
        if len(rivals) < len(tokens):
            tokens, nearest, rows = tokens[rivals], nearest[rivals], rows.index_select(0, rivals)
        each_other = self._cloud.compare(rows, rows, space)
        if isinstance(self._cloud, TableCloud):
            steps = choose_from_table(nearest, each_other, most=self._wanted, doubt=doubt)
        else:
            limits = {"limit": limit, "doubt": doubt, "crowd": 4.0 * _CROWD}
            steps = choose_from_shortlist(nearest, each_other, most=self._wanted, **limits)
        self._doubts += list_candidates(steps, tokens.tolist(), len(self._centers))
        self._take(tokens, nearest, each_other, steps)
        return False

    def _take(self, tokens: Tensor, nearest: Tensor, each_other: Tensor, steps: list[Step]) -> None:
        """Make centres of what was chosen among some tokens, by their cosines."""
        chosen = torch.tensor([step[0] for step in steps])
        nearest = torch.maximum(nearest, each_other.index_select(1, chosen).amax(-1))
        self._bounds.renew(tokens, nearest.index_fill_(0, chosen, math.inf))
        self._centers.add(tokens[chosen])


def _find_farthest_from_mean(tokens: Distinct) -> int:
    """The first centre when there is none: the token farthest from the mean of all."""
    cloud = tokens.cloud
    number = tokens.place.bincount(minlength=len(cloud)).double()
    everyone = torch.arange(len(cloud)).split(_SUMMED_AT_ONCE)
    sums = [number[some].unsqueeze(0) @ cloud.snap(some).grid for some in everyone]
    mean = snap(torch.stack(sums).sum(0))
    direction = torch.nn.functional.normalize(mean.grid, dim=-1).float()
    estimate = cloud.estimate_cosines(direction).squeeze(-1)
    rivals = (estimate <= estimate.amin() + cloud.doubt).nonzero().squeeze(-1)
    parts = [cosine(cloud.snap(some), mean).squeeze(-1) for some in rivals.split(_SUMMED_AT_ONCE)]
    return int(rivals[find_smallest(torch.cat(parts))])


def list_candidates(steps: list[Step], tokens: list[int], before: int) -> list[Candidate]:
    """All that came into question where a guess was in doubt.

    Parameters
    ----------
    steps : list of Step
        The guess.
    tokens : list of int
        What its places mean.
    before : int
        How many centres there were.
    """
    return [
        Candidate(place, tokens[rival])
        for place, step in enumerate(steps, before)
        if len(step) > 1
        for rival in step
    ]


# ---- were the centres chosen rightly? Exact distances where estimates could not tell --------


class Candidate(NamedTuple):
    """A token that may be the right choice for the centre at `place`."""

    place: int
    token: int


def find_first_mistake(
    cloud: Cloud, centers: Centers, bounds: Bounds, doubts: list[Candidate]
) -> Candidate | None:
    """What should have been chosen where first something else was; None if all is right.

    Right is the token farthest from all centres before it, by the tie rule of `exact.py`.

    Parameters
    ----------
    cloud, centers, bounds
        One sample, with the centres that are in question.
    doubts : list of Candidate
        By rising place; for each centre in doubt, itself and all its rivals.
    """
    farthest: dict[int, tuple[float, int]] = {}
    distances = _measure_doubts(cloud, centers, bounds, doubts) if doubts else []
    for (place, token), distance in zip(doubts, distances, strict=True):
        candidate = (-distance, token)  # the smallest: farthest, then lowest index
        farthest[place] = min(farthest.get(place, candidate), candidate)
    chosen = centers.tokens.tolist()
    for place, (_, token) in farthest.items():
        if chosen[place] != token:
            return Candidate(place, token)
    return None


def _measure_doubts(
    cloud: Cloud, centers: Centers, bounds: Bounds, doubts: list[Candidate]
) -> list[float]:
    """For each doubt the token's exact distance to the nearest of the centres before it."""
    places, names = torch.tensor(doubts).T.contiguous()
    tokens, row = names.unique(return_inverse=True)
    near = _find_possible_nearest(bounds.estimate_cosines(tokens), places, row, cloud.doubt)
    points = cloud.snap(tokens, Workspace.of_this_thread("top"))
    columns, distance = measure_distances(cloud, centers, points, near)
    column = torch.searchsorted(columns, places) - 1  # the last one before the centre in doubt
    exact: list[float] = distance.cummin(-1).values[row, column].tolist()
    return exact


def _find_possible_nearest(cosines: Tensor, places: Tensor, row: Tensor, doubt: float) -> Tensor:
    """Which centres may be nearest to which tokens while these are in doubt.

    Parameters
    ----------
    cosines : Tensor
        ``(tokens, centres)``, estimates.
    places, row : Tensor
        ``(doubts,)`` int64: the centre in doubt, and the row of the token.
    doubt : float
        Cosines that differ by no more may be in any order.
    """
    spans = torch.zeros(len(cosines), dtype=torch.int64)
    first = spans.scatter_reduce(0, row, places, "amin", include_self=False).unsqueeze(-1)
    last = spans.scatter_reduce(0, row, places, "amax", include_self=False).unsqueeze(-1)
    # A centre that is not nearest when it is added, or when the first doubt arises, never will be.
    nearest_yet = cosines.cummax(-1).values
    nearest_yet = torch.maximum(nearest_yet, nearest_yet.gather(1, first - 1))
    return (cosines >= nearest_yet - doubt) & (torch.arange(cosines.shape[1]) < last)


def measure_distances(
    cloud: Cloud, centers: Centers, points: Points, near: Tensor
) -> tuple[Tensor, Tensor]:
    """Distances of some tokens to some of the centres.

    Parameters
    ----------
    cloud, centers
        One sample.
    points : Points
        The ``m`` tokens.
    near : Tensor
        ``(m, centres)`` bool, which pairs are asked for.

    Returns
    -------
    columns : Tensor
        ``(c,)`` int64, the places of all centres that are near to any of the tokens.
    distance : Tensor
        ``(m, c)`` float64, inf where not asked for.
    """
    columns = near.any(0).nonzero().squeeze(-1)
    others = cloud.snap(centers.tokens[columns], Workspace.of_this_thread("near"))
    distance = distances(points, others)
    return columns, distance.masked_fill_(~near.index_select(1, columns), math.inf)
