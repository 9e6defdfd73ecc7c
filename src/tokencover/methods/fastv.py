"""FastV: "An Image is Worth 1/2 Tokens After Layer 2" (ECCV 2024, arXiv 2403.06764).

Place: before a decoder block, by default after two blocks have run. Signal: the attention that the
last prompt token gave each visual token in the block before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tokencover.budget import PublishedMode
from tokencover.methods._shared.last_block_method import ReadsLastBlock
from tokencover.methods._shared.ranking import choose_best
from tokencover.methods.base import Card, Choice, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class FastV(ReadsLastBlock):
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
    published_mode: ClassVar[PublishedMode] = "layer_mean"
    card: ClassVar[Card] = Card(
        title="FastV",
        year=2024,
        objective="visual",
        pruning_point="after 2 decoder blocks",
        signal="attention of the last prompt token in the block before",
        paper="2403.06764",
        departs=(
            "none: one row of attention, as the code has it (the paper's text averages all rows)"
        ),
    )
    reads_prompt = False

    after: int = 2

    def choose(self, view: View) -> Choice:
        """The highest head means of the last row."""
        return Choice(choose_best(self.read_last_row(view), view.mask, self.num_kept(view)))
