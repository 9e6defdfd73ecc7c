"""Methods that prune once, by what the last block that has run computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from tokencover.errors import InputError
from tokencover.methods.base import ActsOnce, View


class ReadsLastBlock(ActsOnce):
    """A method that reads keys or attention of the last block before pruning, so one must run."""

    reads: ClassVar[str] = "attention to look at"
    """What the method lacks if no block has run, for the message."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.after == 0:
            raise InputError(
                f"after=0 leaves {self.card.title} without {self.reads}: let at least 1 block run."
            )

    def watched_layers(self, num_layers: int) -> Sequence[int]:
        """The block that ran last before pruning."""
        return (self.after - 1,)

    def read_last_row(self, view: View) -> Tensor:
        """Attention of the last prompt token to each visual token, mean over heads, ``(b, n)``."""
        return view.attention(self.after - 1, view.last.unsqueeze(-1)).squeeze(2).mean(1)
