"""DivPrune (CVPR 2025): diversity-based visual token pruning.

Differences from the released code: exact distances with ties to the lowest index; all images of a
prompt form one pool; newline tokens are not counted and stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tokencover.covering import select_diverse
from tokencover.methods.base import BeforeDecoder, Card, Choice, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class DivPrune(BeforeDecoder):
    """Keep the visual tokens that differ most from each other.

    https://arxiv.org/abs/2503.02175. The kept set should have the largest possible cosine distance
    between its two nearest tokens. The greedy solution starts with the token farthest from its
    nearest neighbor and adds, each time, the token farthest from all kept ones.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep: a count, or a fraction of all. For `budget_mode` and
        `positions` see `BudgetedMethod`.
    """

    name: ClassVar[str] = "divprune"
    card: ClassVar[Card] = Card(
        title="DivPrune",
        year=2025,
        objective="visual",
        pruning_point="before the decoder",
        signal="cosine distances among visual tokens (max-min)",
        paper="2503.02175",
        departs="one pool for all images; exact distances",
    )
    reads_prompt = False

    def choose(self, view: View) -> Choice:
        """Select farthest points, starting with the most isolated token."""
        kept = []
        for states, mask, count in zip(
            view.hidden_states, view.mask, self.num_kept(view), strict=True
        ):
            tokens = states if mask.all() else states[mask]  # which copies them
            kept.append(select_diverse(tokens, budget=count))
        return Choice(kept)
