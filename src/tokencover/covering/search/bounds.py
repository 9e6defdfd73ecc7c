"""Which tokens may be the farthest: bounds for all of them, and a heap for a few.

The closeness to the nearest center can only grow when centers are added: an old one is a lower
bound. So every token is compared with the starting centers once, by estimates (`Bounds`), and with
the centers added since (`Centers`) only where that is necessary.
"""

from __future__ import annotations

import heapq
import math

import torch
from torch import Tensor

from tokencover.covering import tuning
from tokencover.covering.search.scratch import ScratchBuffers
from tokencover.covering.search.vectors import Estimates, Rows

Step = list[int]
"""One choice: the index of the token that seems the farthest, then those of its rivals, which may
be as far or farther since estimates err."""
_Entry = tuple[float, int, int]
"""A token's closeness to the nearest of some centers, its index, and how many of the added centers
these are. Sorts by rising closeness, then by index: the tie rule."""


class Centers:
    """Centers of one sample in order of choice, ``(centers,)`` tokens, and their rows.

    Room is made for `total` centers. Only one object per thread may be in use at a time.
    """

    def __init__(self, estimates: Estimates, tokens: Tensor, total: int) -> None:
        self._estimates = estimates
        self._count = 0
        self._tokens = torch.empty(total, dtype=torch.int64)
        buffers = ScratchBuffers.of_this_thread("centers")
        self._rows = buffers.empty("rows", (total, estimates.width), torch.float32)
        self.add(tokens)

    def __len__(self) -> int:
        return self._count

    @property
    def tokens(self) -> Tensor:
        """Indices of the centers, ``(centers,)`` int64."""
        return self._tokens[: self._count]

    @property
    def rows(self) -> Tensor:
        """Their rows, ``(centers, width)`` float32."""
        return self._rows[: self._count]

    def add(self, tokens: Tensor) -> None:
        """Append some tokens."""
        where = slice(self._count, self._count + len(tokens))
        self._tokens[where] = tokens
        self._estimates.get_rows(tokens, out=self._rows[where])
        self._count = where.stop

    def cut(self, count: int) -> None:
        """Remove all but the first `count`."""
        self._count = count


class Bounds:
    """Lower bounds on the closeness of each token to its nearest center; inf for a center.

    The centers present at the start, at least one, are compared with all tokens. With `start`,
    ``(n,)`` bounds from other estimates, they are not: a token is compared when it may be the
    farthest, and is *known* from then on.
    """

    def __init__(self, estimates: Estimates, centers: Centers, start: Tensor | None = None) -> None:
        self._estimates, self._centers = estimates, centers
        self._buffers = ScratchBuffers.of_this_thread("top")
        self._compared = len(centers)
        if start is None:
            buffers = ScratchBuffers.of_this_thread("start")
            self._to_start = estimates.estimate(centers.rows, buffers=buffers)
            self._nearest = self._to_start.amax(-1)
            self._bound = self._nearest - estimates.error
        else:
            self._to_start = torch.empty(len(start), 0)
            self._nearest = torch.full((len(start),), -math.inf)
            self._bound = start
        self._bound[centers.tokens] = math.inf

    @property
    def estimates(self) -> Estimates:
        """What the bounds come from."""
        return self._estimates

    @property
    def known(self) -> Tensor:
        """Which tokens have been compared with centers, ``(n,)`` bool."""
        return self._nearest > -math.inf

    def list_smallest(self, size: int) -> Tensor:
        """The tokens with the smallest bounds, ascending; at most as many as are not centers."""
        size = min(size, len(self._bound) - len(self._centers))
        return self._bound.topk(size, largest=False).indices.sort().values

    def estimate(self, tokens: Rows) -> Tensor:
        """Closeness of some tokens to all centers, ``(tokens, centers)`` float32."""
        to_start = self._to_start[tokens]
        return torch.cat([to_start, self._estimate_from(to_start.shape[1], tokens)], dim=1)

    def estimate_nearest(self, tokens: Tensor, rows: Tensor | None = None) -> Tensor:
        """Closeness of some tokens, whose `rows` may be given, to the nearest center."""
        self._compare_unknown(tokens)
        nearest = self._nearest.index_select(0, tokens)
        if self._compared == len(self._centers):
            return nearest
        rows = self._estimates.get_rows(tokens) if rows is None else rows
        added = self._centers.rows[self._compared :]
        closeness = self._estimates.compare(rows, added, self._buffers)
        return torch.maximum(nearest, closeness.amax(-1))

    def list_rivals(self) -> Tensor:
        """All tokens that may be the farthest, ascending."""
        smallest = self.estimate_nearest(self.list_smallest(1)) + self._estimates.error
        tokens = (self._bound <= smallest).nonzero().squeeze(-1)
        nearest = self.estimate_nearest(tokens)
        self.renew(tokens, nearest)
        return tokens[nearest <= nearest.amin() + self._estimates.tolerance]

    def get_near_centers(self, tokens: Tensor, enough: float) -> Tensor:
        """For each token the rank of a close center, ``(tokens,)`` int64.

        The closest starting center if its closeness is `enough`; else the closest later one.
        """
        started = self._to_start.shape[1]
        closeness, rank = self._to_start[tokens].max(-1)
        far = (closeness < enough).nonzero().squeeze(-1)
        if len(far) and len(self._centers) > started:
            later = self._estimate_from(started, tokens[far]).argmax(-1)
            rank[far] = later + started
        return rank

    def estimate_all(self, ranks: Tensor) -> Tensor:
        """Closeness of all tokens to the centers at some `ranks`, ascending."""
        started = self._to_start.shape[1]
        later = self._centers.rows[ranks[ranks >= started]]
        to_later = self._estimates.estimate(later, buffers=self._buffers)
        return torch.cat([self._to_start[:, ranks[ranks < started]], to_later], dim=1)

    def mark_possible_nearest(self, tokens: Rows) -> Tensor:
        """Which centers may be nearest to which tokens, ``(tokens, centers)`` bool."""
        closeness = self.estimate(tokens)
        return closeness >= closeness.amax(-1, keepdim=True) - self._estimates.tolerance

    def compute_distances(self) -> Tensor:
        """Upper bounds on each token's distance to the nearest center, ``(n,)`` float64."""
        return self._estimates.to_distance(self._bound)

    @property
    def is_fresh(self) -> bool:
        """Whether all tokens that may be the farthest have been compared with all centers."""
        return self._compared == len(self._centers) and len(self._list_unknown_rivals()) == 0

    def refresh(self) -> None:
        """Compare all known tokens, and those that may be the farthest, with all centers."""
        self._compare_unknown(self._list_unknown_rivals())
        known = self.known
        if self._compared < len(self._centers):
            index = known.nonzero().squeeze(-1)
            for begin in range(0, len(index), tuning.REFRESH_BLOCK):
                some: Rows = slice(begin, begin + tuning.REFRESH_BLOCK)
                some = some if len(index) == len(known) else index[some]
                newest = self._estimate_from(self._compared, some).amax(-1)
                self._nearest[some] = torch.maximum(self._nearest[some], newest)
            self._compared = len(self._centers)
        self._bound = torch.where(known, self._nearest - self._estimates.error, self._bound)
        self._bound[self._centers.tokens] = math.inf

    def renew(self, tokens: Tensor, nearest: Tensor) -> None:
        """Set the bounds of some tokens by their closeness to the nearest center."""
        self._bound[tokens] = (nearest - self._estimates.error).float()

    def get_smallest_outside(self, tokens: Tensor) -> float:
        """The smallest bound of all other tokens."""
        return float(self._bound.index_fill(0, tokens, math.inf).amin())

    def copy(self) -> tuple[Tensor, Tensor, int]:
        """The state for `restore`."""
        return self._bound.clone(), self._nearest.clone(), self._compared

    def restore(self, copy: tuple[Tensor, Tensor, int]) -> None:
        """Undo what was done since, but keep the present centers."""
        bound, self._nearest, self._compared = copy
        self._bound = bound.index_fill(0, self._centers.tokens, math.inf)

    def _list_unknown_rivals(self) -> Tensor:
        """Which unknown tokens may be farther than all that are known."""
        known = self.known
        farthest = self._bound.masked_fill(~known, math.inf).amin()
        limit = farthest + self._estimates.tolerance
        return ((self._bound <= limit) & ~known & (self._bound < math.inf)).nonzero().squeeze(-1)

    def _compare_unknown(self, tokens: Tensor) -> None:
        """Make some tokens known: compare them with the centers that known ones have seen."""
        unknown = tokens[self._nearest[tokens] == -math.inf]
        if len(unknown) == 0:
            return
        centers = self._centers.tokens[: self._compared]
        for some, ranks in self._estimates.list_blocks(unknown, centers):
            rows = self._centers.rows.index_select(0, ranks)
            self._nearest[some] = self._estimates.estimate(rows, some, self._buffers).amax(-1)

    def _estimate_from(self, first: int, tokens: Rows) -> Tensor:
        """Closeness of some tokens to the centers from the `first` on."""
        return self._estimates.estimate(self._centers.rows[first:], tokens, self._buffers)


def choose_from_shortlist(
    nearest: Tensor,
    each_other: Tensor,
    *,
    most: int,
    limit: float,
    tolerance: float,
    max_rivals: float = math.inf,
) -> list[Step]:
    """Choose up to `most` of m tokens, each with the smallest closeness to its nearest center.

    `nearest` is the ``(m,)`` closeness to the nearest center, `each_other` ``(m, m)``. Tokens
    within the tolerance are rivals. Ends when the smallest closeness reaches the limit, or where
    there are too many rivals. In plain Python: lists are much faster to read than tensors.
    """
    queue = _Queue(nearest.tolist())
    steps: list[Step] = []
    while len(steps) < most and queue.get_smallest() < limit:
        line = queue.get_smallest() + tolerance
        first = queue.pop()
        rivals = []
        while queue.get_smallest() <= line:
            rivals.append(queue.pop())
        if len(rivals) >= max_rivals:
            break
        queue.push(rivals)
        steps.append([index for _, index, _ in (first, *rivals)])
        queue.add_center(each_other[first[1]].tolist())
    return steps


class _Queue:
    """Tokens by their closeness to the nearest center, which is brought up to date when needed."""

    def __init__(self, nearest: list[float]) -> None:
        self._heap: list[_Entry] = [(value, index, 0) for index, value in enumerate(nearest)]
        self._added: list[list[float]] = []
        heapq.heapify(self._heap)

    def get_smallest(self) -> float:
        """The smallest closeness; infinite if the queue is empty."""
        heap, now = self._heap, len(self._added)
        while heap:
            value, index, compared = heap[0]
            if compared == now:
                return value
            since = [closeness[index] for closeness in self._added[compared:]]
            heapq.heapreplace(heap, (max(value, *since), index, now))
        return math.inf

    def pop(self) -> _Entry:
        """Remove the token that has it; call this right after `get_smallest`."""
        return heapq.heappop(self._heap)

    def push(self, entries: list[_Entry]) -> None:
        """Return what was removed."""
        for entry in entries:
            heapq.heappush(self._heap, entry)

    def add_center(self, closeness: list[float]) -> None:
        """Add a center by its closeness to all tokens."""
        self._added.append(closeness)
