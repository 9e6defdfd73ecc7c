"""PyramidDrop (CVPR 2025): visual redundancy reduction in stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

from tokencover.budget import PublishedMode, resolve_mode
from tokencover.methods._shared.decoder import (
    MethodInStages,
    count_by_layer,
    fit_stages,
    scale_stages,
    shrink_evenly,
)
from tokencover.methods._shared.ranking import choose_best
from tokencover.methods.base import Card, Choice, Positions, View
from tokencover.methods.registry import register_method

EARLY, EARLY_DEPTH = (2, 8, 16), 32
"""Stages for means that the default ones cannot reach: before these layers of so many."""


@register_method
@dataclass(frozen=True)
class PyramidDrop(MethodInStages):
    """Drop visual tokens in stages, the same fraction of the remaining ones each time.

    https://arxiv.org/abs/2410.17247. With S stages and N tokens, ``floor(N * lambda**i)`` remain
    after stage i. A budget that is a fraction is ``lambda**S``, rounded down; for a count, lambda
    is such that the last stage leaves it. The score is the mean over heads of the last prompt
    token's attention row. Positions are renumbered after each stage.

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` and `positions` see `BudgetedMethod`. The paper's lambda = 0.5 with
        three stages is the fraction 0.125; its tables count the mean over layers, "layer_mean".
    stages : tuple of int, optional
        The layers before which tokens are dropped; by default at a quarter, a half and three
        quarters of the depth, (8, 16, 24) of 32; with ``budget_mode="published"`` (2, 8, 16) of 32,
        as its authors recommend for small means.
    """

    name: ClassVar[str] = "pyramiddrop"
    published_mode: ClassVar[PublishedMode] = "layer_mean"
    card: ClassVar[Card] = Card(
        title="PyramidDrop",
        year=2024,
        objective="prompt",
        pruning_point="at each quarter of the decoder",
        signal="attention of the last prompt token in the layer about to run",
        paper="2410.17247",
        departs="the fraction of each stage follows from the budget",
    )
    reads_prompt = False
    drops_newlines = True

    stages: tuple[int, ...] | None = None
    positions: Positions = field(default="reindex", kw_only=True)

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        """Return the layer of each stage."""
        stages = self.stages
        if stages is None and self.budget_mode == "published":
            stages = scale_stages(EARLY, EARLY_DEPTH, num_layers)
        if stages is None:
            stages = tuple(sorted({max(1, num_layers * quarter // 4) for quarter in (1, 2, 3)}))
        return fit_stages(stages, num_layers)

    def watched_layers(self, num_layers: int) -> Sequence[int]:
        """Return the layers about to run."""
        return self.pruning_layers(num_layers)

    def num_kept(self, view: View) -> list[int]:
        """Return how many visual tokens of each sample remain at the end; fractions round down."""
        fraction = self._fraction
        if fraction is None:
            return super().num_kept(view)
        return [_round_down(fraction, total) for total in view.total.tolist()]

    def schedule(self, num_kept: int, total: int, num_layers: int) -> list[int]:
        """Return the number of visual tokens per layer."""
        stages = self.pruning_layers(num_layers)
        present = _count_at_stages(num_kept, total, self._fraction, len(stages))
        return count_by_layer(present, stages, num_layers)

    @property
    def _fraction(self) -> float | None:
        """The fraction that remains at the end, if the budget is one."""
        exact = resolve_mode(self.budget_mode, self.published_mode) == "exact"
        return self.budget if exact and isinstance(self.budget, float) else None

    def choose(self, view: View) -> Choice:
        """Select the highest head means of the last row, as many as the stage leaves."""
        rows = view.attention(view.layer_idx, view.last.unsqueeze(-1))
        return Choice(choose_best(rows.squeeze(2).mean(1), view.mask, self.count_here(view)))


@lru_cache(maxsize=256)
def _round_down(fraction: float, total: int) -> int:
    return max(1, int(Fraction(fraction) * total))


@lru_cache(maxsize=256)
def _count_at_stages(
    num_kept: int, total: int, fraction: float | None, stages: int
) -> tuple[int, ...]:
    """Return the tokens before the first stage and after each, by the fraction if it is exact."""
    is_exact = fraction is not None and num_kept == _round_down(fraction, total)
    end = Fraction(fraction) if fraction is not None and is_exact else Fraction(num_kept, total)
    return (total, *shrink_evenly(total, end, stages))
