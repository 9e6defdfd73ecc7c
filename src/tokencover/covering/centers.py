"""Centres chosen so far, as unit vectors for estimates."""

from __future__ import annotations

import torch
from torch import Tensor

from tokencover.covering.estimate import Cloud
from tokencover.covering.workspace import Workspace


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
        self._cloud.directions(tokens, out=self._directions[where])
        self._count = where.stop

    def cut(self, count: int) -> None:
        """Forget all but the first `count`."""
        self._count = count
