"""Methods that prune once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokencover.errors import InputError
from tokencover.methods.base import BudgetedMethod, one_block


@dataclass(frozen=True)
class ActsOnce(BudgetedMethod):
    """A method that prunes once, before the block that follows the first `after` ones.

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` and `positions` see `BudgetedMethod`.
    after : int
        How many decoder blocks run before pruning; 0 is before the decoder.
    """

    after: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.after, bool) or not isinstance(self.after, int) or self.after < 0:
            raise InputError(f"after must be a number of blocks, 0 or more, got {self.after!r}.")

    def blocks(self, depth: int) -> Sequence[int]:
        """Before the block that follows the first `after` ones."""
        return one_block(self.after, depth)
