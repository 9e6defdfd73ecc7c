"""The visual half of MoB alone: farthest points.

Place: before a decoder block, by default after one block has run. Signal: the cosine geometry of
visual tokens; the prompt is not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from tokencover.covering import mob_batch
from tokencover.methods.acts_once import ActsOnce
from tokencover.methods.base import Card, Choice, View


@dataclass(frozen=True)
class FarthestOnly(ActsOnce):
    """Keep the visual tokens that cover the picture: MoB with Kp = 0.

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` and `positions` see `BudgetedMethod`.
    after : int
        How many decoder blocks run before pruning.
    """

    name: ClassVar[str] = "farthest"
    card: ClassVar[Card] = Card(
        title="Farthest points",
        year=2025,
        objective="visual",
        place="after 1 decoder block",
        signal="cosine geometry of visual tokens",
        paper="NeurIPS 2025",
    )
    reads_prompt = False

    def choose(self, view: View) -> Choice:
        """Farthest point sampling on every sample."""
        covers = mob_batch(
            view.states,
            view.prompt,
            budget=self.left(view),
            prompt_budget=0,
            fold=1,
            visual_mask=view.mask,
            prompt_mask=torch.zeros_like(view.prompt_mask),
        )
        centers = [cover.visual_centers for cover in covers]
        return Choice(centers, details=[{"visual_centers": each} for each in centers])
