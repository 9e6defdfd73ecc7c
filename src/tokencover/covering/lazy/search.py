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
4. tokens too much alike for estimates are chosen among by exact distances; where even that does not
   tell enough of them apart, the search ends early, and the caller compares all with all.

What is found is what comparing all with all would choose, index for index.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from tokencover.covering.exact import Points, cosine, distances, find_smallest, mean_direction
from tokencover.covering.lazy.estimate import Bounds, Centers, Cloud, Workspace

_FEWEST, _FEW, _MANY = 64, 160, 640
"""How many tokens are compared at a time: about as many as are wanted, doubled while that settles
nothing; half of the last for exact distances."""
_CROWD, _MISTAKES = 32, 4
"""More rivals for one place, or more wrong guesses, and estimates are too coarse to be of use."""

Step = list[int]
"""One choice: the place of the token that seems the farthest, then those of its rivals, which may
be as far or farther since estimates err."""
_Entry = tuple[float, int, int]
"""A token's cosine to the nearest of some centres, its place, and how many of the added centres
these are. Sorts by rising cosine, then by place: the tie rule."""


def search_farthest(cloud: Cloud, start: Tensor, count: int) -> Tensor:
    """Choose tokens, each farthest from the centres in `start` and those chosen before it.

    Parameters
    ----------
    cloud : Cloud
        The ``n`` tokens of one sample.
    start : Tensor
        Indices of centres that are there already, perhaps none, int64.
    count : int
        At most ``n - len(start)``.

    Returns
    -------
    Tensor
        int64, in order of choice: the first `count`, or fewer where tokens are too much alike.
    """
    if count == 0:
        return start.new_empty(0)
    first = start if len(start) else torch.tensor([_find_farthest_from_mean(cloud)])
    total = len(start) + count
    centers = Centers(cloud, first, total)
    if len(centers) < total:
        _Search(cloud, centers, total).run()
    return centers.tokens[len(start) :]


class _Search:
    """Adds centres until there are `total`, or tokens are too much alike."""

    def __init__(self, cloud: Cloud, centers: Centers, total: int) -> None:
        self._cloud, self._centers, self._total = cloud, centers, total
        self._bounds = Bounds(cloud, centers)
        self._doubts: list[Candidate] = []

    @property
    def _wanted(self) -> int:
        return self._total - len(self._centers)

    def run(self) -> None:
        """Guess and prove as long as that helps; then choose exactly, as long as that helps."""
        mistakes = 0
        while mistakes <= _MISTAKES and not self._guess_and_prove():
            mistakes += 1
        self._repeat(self._choose_exactly, _MANY // 2)

    def _repeat(self, choose: Callable[[Tensor], None], most: int) -> None:
        """Choose among the tokens that may be farthest, at most so many, until that fails."""
        few = min(max(self._wanted, _FEWEST), _FEW)
        size = few
        while self._wanted and size <= most:
            before = len(self._centers)
            choose(self._bounds.find_smallest(size))
            size = few if len(self._centers) > before else 2 * size

    def _guess_and_prove(self) -> bool:
        """Add centres by estimates, up to the first mistake; returns whether there was none."""
        bounds = self._bounds.copy()
        self._doubts.clear()
        self._repeat(self._guess, _MANY)
        mistake = find_first_mistake(self._cloud, self._centers, self._bounds, self._doubts)
        if mistake is None:
            return True
        self._centers.cut(mistake.place)
        self._centers.add(torch.tensor([mistake.token]))
        self._bounds.restore(bounds)
        return False

    def _guess(self, tokens: Tensor) -> None:
        """Choose among some tokens (ascending), by estimates, until others may be farther."""
        doubt = self._cloud.doubt
        nearest = self._bounds.estimate_nearest(tokens)
        self._bounds.renew(tokens, nearest)
        limit = self._bounds.find_smallest_without(tokens) - self._cloud.error
        smallest = float(nearest.amin())
        if smallest >= limit or int((nearest <= smallest + doubt).sum()) > _CROWD:
            return
        rivals = (nearest < limit + doubt).nonzero().squeeze(-1)  # the others are too near
        tokens, nearest = tokens[rivals], nearest[rivals]
        each_other = self._cloud.estimate_mutual_cosines(tokens)
        steps = choose_from_shortlist(
            nearest, each_other, most=self._wanted, limit=limit, doubt=doubt
        )
        self._doubts += list_candidates(steps, tokens.tolist(), len(self._centers))
        self._take(tokens, nearest, each_other, steps)

    def _choose_exactly(self, tokens: Tensor) -> None:
        """The same, by exact distances (times -1, to be the smaller the farther)."""
        distances = measure_nearest_and_mutual(self._cloud, self._centers, self._bounds, tokens)
        nearest, each_other = (-distance for distance in distances)
        limit, most = self._bounds.find_smallest_without(tokens) - 1.0, self._wanted
        steps = choose_from_shortlist(nearest, each_other, most=most, limit=limit, doubt=0.0)
        if steps:
            self._take(tokens, nearest + 1.0, each_other + 1.0, steps)

    def _take(self, tokens: Tensor, nearest: Tensor, each_other: Tensor, steps: list[Step]) -> None:
        """Make centres of what was chosen among some tokens, by their cosines."""
        chosen = torch.tensor([step[0] for step in steps])
        nearest = torch.maximum(nearest, each_other.index_select(1, chosen).amax(-1))
        self._bounds.renew(tokens, nearest.index_fill_(0, chosen, math.inf))
        self._centers.add(tokens[chosen])


def _find_farthest_from_mean(cloud: Cloud) -> int:
    """The first centre when there is none: the token farthest from the mean of all."""
    mean = mean_direction(cloud.snap())
    direction = torch.nn.functional.normalize(mean.grid, dim=-1).float()
    estimate = cloud.estimate_cosines(direction).squeeze(-1)
    rivals = (estimate <= estimate.amin() + cloud.doubt).nonzero().squeeze(-1)
    return int(rivals[find_smallest(cosine(cloud.snap(rivals), mean).squeeze(-1))])


def choose_from_shortlist(
    nearest: Tensor, each_other: Tensor, *, most: int, limit: float, doubt: float
) -> list[Step]:
    """Choose tokens in turn, each with the smallest cosine to its nearest centre.

    In plain Python: a number in a list is much quicker to get at than one in a tensor.

    Parameters
    ----------
    nearest : Tensor
        ``(m,)`` cosine of each token to the nearest centre there is.
    each_other : Tensor
        ``(m, m)`` cosines of the tokens to each other.
    most : int
        End after this many.
    limit : float
        End when the smallest cosine has come to this.
    doubt : float
        Tokens whose cosines differ by no more are rivals.
    """
    queue = _Queue(nearest.tolist())
    steps: list[Step] = []
    while len(steps) < most and queue.find_smallest() < limit:
        line = queue.find_smallest() + doubt
        first = queue.pop()
        rivals = []
        while queue.find_smallest() <= line:
            rivals.append(queue.pop())
        queue.put_back(rivals)
        steps.append([place for _, place, _ in (first, *rivals)])
        queue.add_center(each_other[first[1]].tolist())
    return steps


class _Queue:
    """Tokens by their cosine to the nearest centre.

    Most need not be looked at in most steps, because that cosine only grows.
    """

    def __init__(self, nearest: list[float]) -> None:
        self._heap: list[_Entry] = [(value, place, 0) for place, value in enumerate(nearest)]
        self._added: list[list[float]] = []
        heapq.heapify(self._heap)

    def find_smallest(self) -> float:
        """The smallest cosine; infinite if there is no token."""
        heap, now = self._heap, len(self._added)
        while heap:
            value, place, compared = heap[0]
            if compared == now:
                return value
            since = [cosines[place] for cosines in self._added[compared:]]
            heapq.heapreplace(heap, (max(value, *since), place, now))
        return math.inf

    def pop(self) -> _Entry:
        """Take out the token that has it; to be called right after `find_smallest`."""
        return heapq.heappop(self._heap)

    def put_back(self, entries: list[_Entry]) -> None:
        """Return what was taken out."""
        for entry in entries:
            heapq.heappush(self._heap, entry)

    def add_center(self, cosines: list[float]) -> None:
        """A new centre, by its cosines to all tokens."""
        self._added.append(cosines)


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


def measure_nearest_and_mutual(
    cloud: Cloud, centers: Centers, bounds: Bounds, tokens: Tensor
) -> tuple[Tensor, Tensor]:
    """Distances of some tokens to the nearest centre, ``(m,)``, and to each other, ``(m, m)``."""
    cosines = bounds.estimate_cosines(tokens)
    near = cosines >= cosines.amax(-1, keepdim=True) - cloud.doubt
    points = cloud.snap(tokens, Workspace.of_this_thread("top"))
    _, to_centers = measure_distances(cloud, centers, points, near)
    return to_centers.amin(-1), distances(points, points)
