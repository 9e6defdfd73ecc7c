"""The visual part of MoB alone: farthest points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from tokencover.covering import mob_batch
from tokencover.methods.base import ActsOnce, Card, Choice, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class FarthestOnly(ActsOnce):
    """Keep the visual tokens that cover the image: MoB with Kp = 0.

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` and `positions` see `BudgetedMethod`.
    after : int
        How many decoder layers run before pruning; 1 by default.
    """

    name: ClassVar[str] = "farthest"
    card: ClassVar[Card] = Card(
        title="Farthest points",
        year=2025,
        objective="visual",
        pruning_point="after 1 decoder layer",
        signal="cosines between visual tokens: the visual part of MoB",
        paper="NeurIPS 2025",
        ours=True,
    )
    reads_prompt = False

    after: int = 1

    def choose(self, view: View) -> Choice:
        """Select farthest points of every sample."""
        covers = mob_batch(
            view.hidden_states,
            view.prompt,
            budget=self.num_kept(view),
            prompt_budget=0,
            fold=1,
            visual_mask=view.mask,
            prompt_mask=torch.zeros_like(view.prompt_mask),
        )
        centers = [cover.visual_centers for cover in covers]
        return Choice(centers, details=[{"visual_centers": index} for index in centers])
