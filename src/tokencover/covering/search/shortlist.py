"""Farthest points among a few tokens, in plain Python."""

from __future__ import annotations

import heapq
import math

from torch import Tensor

Step = list[int]
"""One choice: the place of the token that seems the farthest, then those of its rivals, which may
be as far or farther since estimates err."""
_Entry = tuple[float, int, int]
"""A token's cosine to the nearest of some centres, its place, and how many of the added centres
these are. Sorts by rising cosine, then by place: the tie rule."""


def choose_from_shortlist(
    nearest: Tensor,
    each_other: Tensor,
    *,
    most: int,
    limit: float,
    doubt: float,
    crowd: float = math.inf,
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
    crowd : float
        End where more than so many come into question for one place.
    """
    queue = _Queue(nearest.tolist())
    steps: list[Step] = []
    while len(steps) < most and queue.find_smallest() < limit:
        line = queue.find_smallest() + doubt
        first = queue.pop()
        rivals = []
        while queue.find_smallest() <= line:
            rivals.append(queue.pop())
        if len(rivals) >= crowd:
            break
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
