"""FasterVLM: [CLS] attention is all you need for training-free visual token pruning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tokencover.methods._shared.ranking import choose_best
from tokencover.methods._shared.vision_tiles import (
    Crops,
    VisionEncoderMethod,
    compute_cell_attention,
)
from tokencover.methods.base import Card, Choice, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class FasterVLM(VisionEncoderMethod):
    """Keep the patches that the class token of the vision encoder attends to most.

    https://arxiv.org/abs/2412.01818. The score is the mean over heads. Every crop (image, tile,
    frame) gets the same number of tokens. Newline and class tokens are dropped.

    Differences from the released code: its budget is per crop, here it is for the whole prompt and
    divided evenly; it packs tiles with their padding, here the model's packing has removed the
    padding, so tiles with fewer tokens leave the rest to others. Without a class token the score is
    the mean attention received, and where the model merges patches into one token, the mean over
    its patches; the authors recommend both.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep: a count, or a fraction of all. For `budget_mode` and
        `positions` see `BudgetedMethod`.
    """

    name: ClassVar[str] = "fastervlm"
    card: ClassVar[Card] = Card(
        title="FasterVLM",
        year=2024,
        objective="visual",
        pruning_point="before the decoder",
        signal="class token's attention in the vision encoder",
        paper="2412.01818",
        needs=("vision attention",),
        departs="one budget for the prompt, divided evenly among its crops; padding is not kept",
    )

    drops_newlines = True

    def choose(self, view: View) -> Choice:
        """Select the tokens with the highest scores of every crop."""
        encoded, crops = Crops.from_view(view, "FasterVLM")
        scores = compute_cell_attention(encoded, encoded.feature_block).mean(1)
        budgets = self.num_kept(view)
        chosen = choose_best(scores, crops.visible, crops.allocate_evenly(budgets))
        return crops.keep(chosen, budgets, view)
