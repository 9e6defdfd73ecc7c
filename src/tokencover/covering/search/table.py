"""Tokens whose cosines with each other have all been estimated: nothing is multiplied again."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tokencover.covering.exact import Points, find_smallest
from tokencover.covering.search.estimate import Cloud, Rows
from tokencover.covering.search.shortlist import Step
from tokencover.covering.search.workspace import Workspace


@dataclass(frozen=True, slots=True)
class TableCloud(Cloud):
    """The tokens of a cloud, and a table of their cosines.

    Attributes
    ----------
    tokens : Tensor
        ``(n, 1)`` float32: the number of each token, which stands for its direction.
    table : Tensor
        ``(n, n)`` float32, estimates of the whole cloud.
    whole : Cloud
        The tokens as they are.
    """

    table: Tensor
    whole: Cloud

    @classmethod
    def of_table(cls, table: Tensor, whole: Cloud) -> TableCloud:
        """The tokens of `whole`; its estimated cosines, all pairs, are in `table`."""
        numbers = torch.arange(len(whole), dtype=torch.float32).unsqueeze(-1)
        return cls(numbers, whole.inverse_norm, whole.error, table, whole)

    def find_directions(self, index: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """The numbers of some tokens, or of all."""
        index = torch.arange(len(self)) if index is None else index
        return torch.index_select(self.tokens, 0, index, out=out)

    def estimate_cosines(
        self, directions: Tensor, index: Rows | None = None, space: Workspace | None = None
    ) -> Tensor:
        """Estimated cosine of some of the tokens, or all, with others, ``(n, m)`` float32."""
        return self.compare(self._take_rows(index), directions, space)

    def compare(self, rows: Tensor, directions: Tensor, space: Workspace | None = None) -> Tensor:
        """Estimated cosine of each pair of numbers, ``(n, m)`` float32."""
        first, second = (each.squeeze(-1).long() for each in (rows, directions))
        return self.table.index_select(0, first).index_select(1, second)

    def snap(self, index: Rows | None = None, space: Workspace | None = None) -> Points:
        """As of the tokens as they are."""
        return self.whole.snap(index, space)

    def get_whole(self) -> Cloud:
        """The tokens as they are."""
        return self.whole


def choose_from_table(
    nearest: Tensor, each_other: Tensor, *, most: int, doubt: float
) -> list[Step]:
    """As `choose_from_shortlist`, for many tokens: each step looks at all of them."""
    nearest = nearest.clone()
    steps: list[Step] = []
    for _ in range(min(most, len(nearest))):
        pick = find_smallest(nearest)
        rivals = (nearest <= nearest[pick] + doubt).nonzero().squeeze(-1).tolist()
        first = int(pick)
        steps.append([first, *(rival for rival in rivals if rival != first)])
        torch.maximum(nearest, each_other[first], out=nearest)
        nearest[first] = math.inf
    return steps
