"""The centres chosen so far, and how near every token is to its nearest one at least.

The cosine to the nearest centre can only grow when centres are added: the cosine to the nearest of
the starting centres bounds it for ever. So every token is compared with those, once, by float32
estimates, and with the centres added since only where that is asked for.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tokencover.covering.lazy.estimate import Cloud
from tokencover.covering.lazy.workspace import Workspace


class Centers:
    """Centres of one sample, in order of choice. Only one of a thread's may be in use at a time.

    Parameters
    ----------
    cloud : Cloud
        All tokens of the sample.
    tokens : Tensor
        The first centres, as indices, int64.
    room : int
        How many there may be in the end.
    """

    def __init__(self, cloud: Cloud, tokens: Tensor, room: int) -> None:
        self._cloud = cloud
        self._count = 0
        self._tokens = torch.empty(room, dtype=torch.int64)
        space = Workspace.of_this_thread("centers")
        self._directions = space.empty("directions", (room, cloud.width), torch.float32)
        self.add(tokens)

    def __len__(self) -> int:
        return self._count

    @property
    def tokens(self) -> Tensor:
        """Which tokens they are, ``(centres,)`` int64."""
        return self._tokens[: self._count]

    @property
    def directions(self) -> Tensor:
        """Their unit vectors, ``(centres, d)`` float32."""
        return self._directions[: self._count]

    def add(self, tokens: Tensor) -> None:
        """Append some tokens."""
        where = slice(self._count, self._count + len(tokens))
        self._tokens[where] = tokens
        self._cloud.find_directions(tokens, out=self._directions[where])
        self._count = where.stop

    def cut(self, count: int) -> None:
        """Forget all but the first `count`."""
        self._count = count


class Bounds:
    """Lower bounds on the cosine of each token to its nearest centre, inf for a centre.

    Parameters
    ----------
    cloud : Cloud
        The ``n`` tokens of one sample.
    centers : Centers
        At least one; those that are there now are the starting centres.
    """

    def __init__(self, cloud: Cloud, centers: Centers) -> None:
        self._cloud, self._centers = cloud, centers
        self._space, space = (Workspace.of_this_thread(name) for name in ("top", "start"))
        self._to_start = cloud.estimate_cosines(centers.directions, space=space)
        self._nearest_start = self._to_start.amax(-1)
        self._bound = self._nearest_start - cloud.error
        self._bound[centers.tokens] = math.inf

    def find_smallest(self, size: int) -> Tensor:
        """The tokens with the smallest bounds, ascending; fewer than `size` if fewer are left."""
        size = min(size, len(self._bound) - len(self._centers))
        return self._bound.topk(size, largest=False).indices.sort().values

    def estimate_cosines(self, tokens: Tensor) -> Tensor:
        """Estimated cosines of some tokens to all centres, ``(tokens, centres)`` float32."""
        to_start = self._to_start.index_select(0, tokens)
        return torch.cat([to_start, self._estimate_to_added(tokens)], dim=1)

    def estimate_nearest(self, tokens: Tensor) -> Tensor:
        """Estimated cosine of some tokens to the nearest centre, ``(tokens,)`` float32."""
        nearest = self._nearest_start.index_select(0, tokens)
        if len(self._centers) == self._to_start.shape[1]:
            return nearest
        return torch.maximum(nearest, self._estimate_to_added(tokens).amax(-1))

    def renew(self, tokens: Tensor, nearest: Tensor) -> None:
        """Set the bounds of some tokens by such an estimate."""
        self._bound[tokens] = (nearest - self._cloud.error).float()

    def find_smallest_without(self, tokens: Tensor) -> float:
        """The smallest bound of all other tokens."""
        others = self._bound.index_fill(0, tokens, math.inf)
        return float(others.amin())

    def copy(self) -> Tensor:
        """For `restore`."""
        return self._bound.clone()

    def restore(self, copy: Tensor) -> None:
        """Undo what was done since, but for the centres of today."""
        self._bound = copy.index_fill(0, self._centers.tokens, math.inf)

    def _estimate_to_added(self, tokens: Tensor) -> Tensor:
        added = self._centers.directions[self._to_start.shape[1] :]
        return self._cloud.estimate_cosines(added, tokens, self._space)
