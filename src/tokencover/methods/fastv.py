"""FastV (ECCV 2024): an image is worth 1/2 tokens after layer 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tokencover.budget import PublishedMode
from tokencover.methods._shared.decoder import LastLayerMethod
from tokencover.methods._shared.ranking import choose_best
from tokencover.methods.base import Card, Choice, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class FastV(LastLayerMethod):
    """Keep the visual tokens that the last prompt token attends to most.

    https://arxiv.org/abs/2403.06764. The score is the mean over heads of one attention row. The
    paper's text averages over all rows; the authors' code takes the last one, as here.

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` and `positions` see `BudgetedMethod`. The paper's R is the fraction 1 -
        R.
    after : int
        How many decoder layers run before pruning, at least 1 (the paper's K); 2 by default.
    """

    name: ClassVar[str] = "fastv"
    published_mode: ClassVar[PublishedMode] = "layer_mean"
    card: ClassVar[Card] = Card(
        title="FastV",
        year=2024,
        objective="visual",
        pruning_point="after 2 decoder layers",
        signal="attention of the last prompt token in the layer before",
        paper="2403.06764",
        departs=(
            "none: one row of attention, as the code has it (the paper's text averages all rows)"
        ),
    )
    reads_prompt = False

    after: int = 2

    def choose(self, view: View) -> Choice:
        """Select the highest head means of the last row."""
        return Choice(
            choose_best(self.compute_last_attention(view), view.mask, self.num_kept(view))
        )
