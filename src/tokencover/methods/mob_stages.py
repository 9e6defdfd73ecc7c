"""MoB in stages: cover the image first, then the prompt. Our extension of MoB."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import torch
from torch import Tensor

from tokencover.budget import round_half_up
from tokencover.covering import farthest_points
from tokencover.methods._shared.decoder import MethodInStages, count_by_layer, fit_stages
from tokencover.methods._shared.nearest_kept import merge_into_nearest
from tokencover.methods._shared.ranking import choose_best
from tokencover.methods.base import Card, Choice, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class MoBStages(MethodInStages):
    """Cover the image first, then the prompt and the rest of the image.

    Before the decoder, prompt and visual tokens have not attended to each other, so the first stage
    is the visual part of MoB: farthest points, more of them than remain at the end. At later
    stages, the tokens that the last prompt token attends to are the prompt centers; farthest points
    cover the rest.

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` and `positions` see `BudgetedMethod`.
    stages : tuple of int, optional
        How many layers run before each stage; by default 0 and a third of the depth, (0, 11) of 32.
    ratio : float
        How many times more tokens each stage keeps than the next one.
    asked : float
        Fraction of a later stage's tokens that are prompt centers, from 0 to 1.
    folded : float
        Weight, from 0 to 1, at which every stage averages a dropped token into the most similar
        kept one. 0 drops it.
    """

    name: ClassVar[str] = "mob_stages"
    card: ClassVar[Card] = Card(
        title="MoB in stages",
        year=2026,
        objective="both",
        pruning_point="before the decoder and after a third of it",
        signal="cosines between visual tokens; later also attention of the last prompt token",
        ours=True,
    )
    reads_prompt = False
    setting_limits: ClassVar = {"ratio": (1, math.inf), "asked": (0, 1), "folded": (0, 1)}

    stages: tuple[int, ...] | None = None
    ratio: float = 3.0
    asked: float = 0.6
    folded: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "merges", self.folded > 0)

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        """Return the layer of each stage."""
        stages = self.stages
        if stages is None:
            stages = (0, round_half_up(Fraction(num_layers, 3))) if num_layers > 1 else (0,)
        return fit_stages(stages, num_layers)

    def watched_layers(self, num_layers: int) -> Sequence[int]:
        """Return the layers about to run at stages after the first."""
        return self.pruning_layers(num_layers)[1:]

    def schedule(self, num_kept: int, total: int, num_layers: int) -> list[int]:
        """Return the number of visual tokens per layer."""
        stages, ratio = self.pruning_layers(num_layers), Fraction(self.ratio)
        later = range(len(stages) - 1, -1, -1)
        present = [min(total, round_half_up(num_kept * ratio**stage)) for stage in later]
        return count_by_layer([total, *present], stages, num_layers)

    def choose(self, view: View) -> Choice:
        """Select prompt centers by attention, none at the first stage; then farthest points."""
        counts = self.count_here(view)
        details = []
        for sample, centers in enumerate(self._select_prompt_centers(view, counts)):
            states = view.hidden_states[sample, view.mask[sample]].detach()
            budget = counts[sample] - len(centers)
            rest = farthest_points(states, budget=budget, start=centers)
            details.append({"prompt_centers": centers, "visual_centers": rest})
        kept = [torch.cat([*parts.values()]) for parts in details]
        merged = self._merge(view, kept) if self.merges else None
        return Choice(kept, hidden_states=merged, details=details)

    def _merge(self, view: View, kept: Sequence[Tensor]) -> Tensor:
        states = view.hidden_states.clone()
        for sample, index in enumerate(kept):
            tokens = view.hidden_states[sample, view.mask[sample]]
            states[sample, index] = merge_into_nearest(tokens, index, self.folded).to(states)
        return states

    def _select_prompt_centers(self, view: View, counts: Sequence[int]) -> list[Tensor]:
        """Return what the last prompt token of each sample will attend to most."""
        if view.layer_idx == self.pruning_layers(view.num_layers)[0]:
            return [view.positions.new_empty(0) for _ in counts]
        rows = view.attention(view.layer_idx, view.last.unsqueeze(-1))
        wanted = [round_half_up(Fraction(self.asked) * count) for count in counts]
        return choose_best(rows.squeeze(2).mean(1), view.mask, wanted)
