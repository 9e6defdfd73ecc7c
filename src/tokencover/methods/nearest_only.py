"""The prompt part of MoB alone: the tokens nearest to the prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tokencover.covering import Cover, mob_batch
from tokencover.methods.base import ActsOnce, Card, Choice, Details, View
from tokencover.methods.mob import build_lazy_center_positions
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class NearestOnly(ActsOnce):
    """Keep the visual tokens with the largest cosine to any prompt token: MoB with Kp = K.

    Without prompt tokens it keeps farthest points, and records this under "fallback" in the
    details.

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` and `positions` see `BudgetedMethod`.
    after : int
        How many decoder layers run before pruning; 1 by default.
    """

    name: ClassVar[str] = "nearest"
    card: ClassVar[Card] = Card(
        title="Nearest to the prompt",
        year=2025,
        objective="prompt",
        pruning_point="after 1 decoder layer",
        signal="cosines of visual tokens with prompt tokens: the prompt part of MoB",
        paper="NeurIPS 2025",
        ours=True,
    )

    after: int = 1

    def choose(self, view: View) -> Choice:
        """Select the K nearest tokens of every sample."""
        counts = self.num_kept(view)
        covers = mob_batch(
            view.hidden_states,
            view.prompt,
            budget=counts,
            prompt_budget=counts,
            # A token among the K best is among the K nearest of its best prompt token: K per
            # prompt token are enough, also with a single one.
            fold=counts,
            visual_mask=view.mask,
            prompt_mask=view.prompt_mask,
        )
        details = [_describe(view, sample, cover) for sample, cover in enumerate(covers)]
        return Choice([cover.indices for cover in covers], details=details)


def _describe(view: View, sample: int, cover: Cover) -> Details:
    details = Details(
        prompt_centers=cover.prompt_centers,
        visual_centers=cover.visual_centers,
        center_prompt_positions=build_lazy_center_positions(view, sample, cover.prompt_centers),
    )
    if len(cover.prompt_centers) == 0:
        fallback = "the prompt has no words: farthest points were kept"
        return Details(details, fallback=fallback)
    return details
