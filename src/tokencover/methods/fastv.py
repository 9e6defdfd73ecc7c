"""FastV: "An Image is Worth 1/2 Tokens After Layer 2" (ECCV 2024, arXiv 2403.06764).

Place: before a decoder block, by default after two blocks have run. Signal: the attention that the
last prompt token gave each visual token in the block before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tokencover.errors import InputError
from tokencover.methods.acts_once import ActsOnce
from tokencover.methods.base import Card, Choice, View
from tokencover.methods.ranking import best


@dataclass(frozen=True)
class FastV(ActsOnce):
    """Keep the visual tokens that the last prompt token attends to most.

    The score is the mean over heads of one row of attention. The paper's text averages over all
    rows; the authors' code, and so this, takes the last one. Tokens are chosen once, in the
    prefill, and keep their positions.

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` and `positions` see `BudgetedMethod`. With R of the paper it is the
        share 1 - R.
    after : int
        How many decoder blocks run before pruning, at least 1 (K of the paper). The attention is
        that of the last of them.
    """

    name: ClassVar[str] = "fastv"
    card: ClassVar[Card] = Card(
        title="FastV",
        year=2024,
        objective="visual",
        place="after 2 decoder blocks",
        signal="attention row of the last prompt token",
        paper="2403.06764",
    )
    reads_prompt = False

    after: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.after == 0:
            raise InputError(
                "after=0 leaves FastV without attention to look at: let at least 1 block run."
            )

    def watched(self, depth: int) -> Sequence[int]:
        """The block that ran last before pruning."""
        return (self.after - 1,)

    def choose(self, view: View) -> Choice:
        """The highest head means of the last row."""
        rows = view.attention(self.after - 1, view.last.unsqueeze(-1))
        scores = rows.squeeze(2).mean(1)
        return Choice(best(scores, view.mask, self.left(view)))
