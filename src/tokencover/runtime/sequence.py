"""Shortening sequences: which positions stay, and how tensors follow."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Kept:
    """The positions that stay, row by row in their old order, aligned to the right.

    Attributes
    ----------
    index : Tensor
        ``(b, m)`` int64, places in the original sequence.
    valid : Tensor
        ``(b, m)`` bool; False in the slots that only fill up shorter rows.
    """

    index: Tensor
    valid: Tensor

    @classmethod
    def where(cls, keep: Tensor) -> Kept:
        """From a mask ``(b, s)`` of the positions that stay."""
        length = int(keep.sum(-1).max())
        # A stable sort of booleans moves what stays to the right without changing its order.
        index = keep.to(torch.uint8).argsort(dim=-1, stable=True)[:, keep.shape[1] - length :]
        return cls(index, keep.gather(1, index))

    def mask(self, length: int) -> Tensor:
        """``(b, length)`` bool, the positions that stay."""
        spare = torch.zeros(len(self.index), length + 1, dtype=torch.bool, device=self.index.device)
        return spare.scatter_(1, self._or_spare(length), True)[:, :length]

    def take(self, tensor: Tensor) -> Tensor:
        """Shorten dimension 1 of ``(b or 1, s, ...)``."""
        index = self.index.to(tensor.device)
        rows = torch.arange(len(index), device=tensor.device).unsqueeze(-1)
        return tensor.expand(len(index), *tensor.shape[1:])[rows, index]

    def put_back(self, states: Tensor, length: int) -> Tensor:
        """Spread ``(b, m, d)`` over the original length; zeros where a token was dropped."""
        index = self._or_spare(length).to(states.device).unsqueeze(-1)
        full = states.new_zeros(len(states), length + 1, states.shape[-1])
        return full.scatter(1, index.expand_as(states), states)[:, :length]

    def within(self, earlier: Kept, length: int) -> Kept:
        """The same positions, as places in a sequence that `earlier` shortened before."""
        places = torch.arange(earlier.index.shape[1], device=self.index.device)
        slots = torch.zeros(len(self.index), length + 1, dtype=torch.int64, device=places.device)
        slots.scatter_(1, earlier._or_spare(length), places.expand_as(earlier.index))
        return Kept(slots.gather(1, self.index), self.valid)

    def _or_spare(self, length: int) -> Tensor:
        """Places in the original sequence, with filling slots sent to one spare place behind it."""
        return self.index.masked_fill(~self.valid, length)


def packed_left(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Places of the True entries of each row, filled up from the left, and which of them count."""
    length = int(mask.sum(-1).max()) if mask.numel() else 0
    index = (~mask).to(torch.uint8).argsort(dim=-1, stable=True)[:, :length]
    return index, mask.gather(1, index)
