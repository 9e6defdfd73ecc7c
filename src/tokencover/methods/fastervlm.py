"""FasterVLM: [CLS] attention is all you need for training-free visual token pruning.

Place: before the decoder. Signal: the class token's attention in the tower block that makes the
visual tokens; the question is not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tokencover.methods._shared.ranking import choose_best
from tokencover.methods._shared.tower_crops import Crops, ReadsTower, read_attention_rows
from tokencover.methods.base import Card, Choice, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class FasterVLM(ReadsTower):
    """Keep the patches that the tower's class token attends to most, arXiv 2412.01818.

    The score is the mean over heads. Every crop (image, tile, frame) gets the same number of
    tokens. Newline and class tokens are not passed on.

    Where the released code differs: its budget is for one crop, here it is for the whole prompt
    and shared evenly; it packs tiles with their padding, here the model's own packing has cut the
    padding away, so tiles with fewer tokens than their share leave the rest to the others. For
    towers without a class token the score is the mean attention received, which the authors
    recommend there; where the model folds patches into one token, scores are folded the same way,
    as they recommend too: the mean over its patches.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep. For `budget_mode` and `positions` see `BudgetedMethod`;
        the decoder gets a sequence without gaps.
    """

    name: ClassVar[str] = "fastervlm"
    card: ClassVar[Card] = Card(
        title="FasterVLM",
        year=2024,
        objective="visual",
        pruning_point="before the decoder",
        signal="class token's attention in the vision tower",
        paper="2412.01818",
        needs=("encoder",),
        departs="one budget for the prompt, shared evenly by its crops; padding is not kept",
    )

    drops_newlines = True

    def choose(self, view: View) -> Choice:
        """The best of every crop."""
        encoded, crops = Crops.from_view(view, "FasterVLM")
        scores = read_attention_rows(encoded, encoded.feature_block).mean(1)
        budgets = self.num_kept(view)
        chosen = choose_best(scores, crops.visible, crops.share_evenly(budgets))
        return crops.keep(chosen, budgets, view)
