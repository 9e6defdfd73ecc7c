"""PyramidDrop (CVPR 2025, arXiv 2410.17247).

Place: before several decoder blocks, by default at each quarter of the depth. Signal: the attention
that the last prompt token would give each visual token in the block about to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

from tokencover.budget import PublishedMode, resolve_mode
from tokencover.errors import InputError
from tokencover.methods._shared.decoder_stages import (
    count_by_block,
    fit_stages,
    scale_stages,
    shrink_evenly,
)
from tokencover.methods._shared.ranking import choose_best
from tokencover.methods.base import BudgetedMethod, Card, Choice, Positions, View
from tokencover.methods.registry import register_method

EARLY, EARLY_DEPTH = (2, 8, 16), 32
"""Places for means that the usual ones cannot reach: before these blocks of so many."""


@register_method
@dataclass(frozen=True)
class PyramidDrop(BudgetedMethod):
    """Drop visual tokens in stages, each time the same share of those left.

    With S stages and N tokens, ``floor(N * lambda**i)`` are left after stage i. A budget that is a
    share is ``lambda**S``, rounded down like all others; for a count, lambda is such that the last
    stage leaves it. The score is the mean over heads of
    the last prompt token's row of attention. All visual tokens of a sample, newline tokens
    included, are one pool. Positions are numbered anew after each stage.

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` and `positions` see `BudgetedMethod`. The paper's lambda = 0.5 with
        three stages is the share 0.125; its tables count the mean over blocks, "layer_mean".
    stages : tuple of int, optional
        The blocks before which tokens are dropped; by default at a quarter, a half and three
        quarters of the depth, (8, 16, 24) of 32. Small means need earlier stages: with
        ``budget_mode="published"`` they are (2, 8, 16) of 32, which its authors advise for such.
    """

    name: ClassVar[str] = "pyramiddrop"
    published_mode: ClassVar[PublishedMode] = "layer_mean"
    card: ClassVar[Card] = Card(
        title="PyramidDrop",
        year=2024,
        objective="prompt",
        pruning_point="at each quarter of the decoder",
        signal="attention of the last prompt token in the block about to run",
        paper="2410.17247",
        departs="the share of each stage follows from the budget",
    )
    reads_prompt = False
    drops_newlines = True

    stages: tuple[int, ...] | None = None
    positions: Positions = field(default="reindex", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stages is not None and not _is_ascending(self.stages):
            raise InputError(
                f"stages must be ascending numbers of blocks such as (8, 16, 24), got "
                f"{self.stages!r}."
            )

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        """Before each stage."""
        stages = self.stages
        if stages is None and self.budget_mode == "published":
            stages = scale_stages(EARLY, EARLY_DEPTH, num_layers)
        if stages is None:
            stages = tuple(sorted({max(1, num_layers * quarter // 4) for quarter in (1, 2, 3)}))
        return fit_stages(stages, num_layers)

    def watched_layers(self, num_layers: int) -> Sequence[int]:
        """The blocks about to run."""
        return self.pruning_layers(num_layers)

    def num_kept(self, view: View) -> list[int]:
        """How many visual tokens of each sample must be left in the end; shares round down."""
        share = self._share
        if share is None:
            return super().num_kept(view)
        return [_round_down(share, total) for total in view.total.tolist()]

    def schedule(self, num_kept: int, total: int, num_layers: int) -> list[int]:
        """The visual tokens each decoder block works on: see `BudgetedMethod.schedule`."""
        stages = self.pruning_layers(num_layers)
        present = _count_at_stages(num_kept, total, self._share, len(stages))
        return count_by_block(present, stages, num_layers)

    @property
    def _share(self) -> float | None:
        """The share that is left in the end, if the budget is one."""
        exact = resolve_mode(self.budget_mode, self.published_mode) == "exact"
        return self.budget if exact and isinstance(self.budget, float) else None

    def choose(self, view: View) -> Choice:
        """The highest head means of the last row, as many as the stage leaves."""
        rows = view.attention(view.layer_idx, view.last.unsqueeze(-1))
        return Choice(choose_best(rows.squeeze(2).mean(1), view.mask, self.count_here(view)))


@lru_cache(maxsize=256)
def _round_down(share: float, total: int) -> int:
    return max(1, int(Fraction(share) * total))


@lru_cache(maxsize=256)
def _count_at_stages(left: int, total: int, share: float | None, stages: int) -> tuple[int, ...]:
    """Tokens before the first stage, and after each; by the share if it is what leaves so many."""
    by_share = share is not None and left == _round_down(share, total)
    each = Fraction(share) if share is not None and by_share else Fraction(left, total)
    return (total, *shrink_evenly(total, each, stages))


def _is_ascending(stages: object) -> bool:
    if not isinstance(stages, tuple) or not stages:
        return False
    numbers = all(type(stage) is int and stage >= 0 for stage in stages)
    return numbers and list(stages) == sorted(set(stages))
