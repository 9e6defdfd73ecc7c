"""Methods that keep what the last prompt token attends to in blocks that are run ahead."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tokencover.budget import PublishedMode, resolve_mode, tokens_to_keep
from tokencover.errors import InputError
from tokencover.methods._shared.ranking import choose_best
from tokencover.methods._shared.wipe import check_wipe, find_wipe_block, remember, wipe
from tokencover.methods.base import ActsOnce, Choice, View


@dataclass(frozen=True)
class LooksAhead(ActsOnce):
    """Keep what the last prompt token attends to in blocks that are run ahead; later, nothing.

    With ``budget_mode="layer_mean"`` and a mean of K over L blocks, of M visual tokens
    ``ceil((L * K - after * M) / (wipe - after))`` are kept until the wipe: the paper's rule, which
    rounds up where other methods take the nearest count.

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` and `positions` see `BudgetedMethod`. The paper's budgets are
        "layer_mean"; with the default, K tokens are kept until the wipe.
    after : int
        How many decoder blocks run before pruning (K of the paper).
    wipe : int, float or None
        The block before which all visual tokens are dropped, or a share of the depth, as in
        `FinalWipe`; None for no wipe.
    """

    looks_ahead = True
    published_mode: ClassVar[PublishedMode] = "layer_mean"

    after: int = 2
    wipe: int | float | None = 0.75

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.wipe is not None:
            check_wipe(self.wipe)

    @abstractmethod
    def read_ahead(self, view: View) -> Tensor:
        """``(b, heads, 1, n)``, attention of the last prompt token, some blocks ahead."""

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        """Before the block that follows the first `after` ones, and the wipe."""
        stages = super().pruning_layers(num_layers)
        return (
            stages
            if self.wipe is None
            else (*stages, find_wipe_block(self.wipe, num_layers, stages))
        )

    def shows_newlines(self, layer_idx: int, num_layers: int) -> bool:
        """Newline tokens stay until the wipe."""
        return layer_idx != self.after

    def schedule(self, num_kept: int, total: int, num_layers: int) -> list[int]:
        """The visual tokens each decoder block works on: see `BudgetedMethod.schedule`."""
        first, end = (*self.pruning_layers(num_layers), num_layers)[:2]
        return [total] * first + [num_kept] * (end - first) + [0] * (num_layers - end)

    def num_kept(self, view: View) -> list[int]:
        """How many visual tokens of each sample are kept until the wipe."""
        if resolve_mode(self.budget_mode, self.published_mode) != "layer_mean":
            return super().num_kept(view)
        return [
            find_count_for_mean(
                tokens_to_keep(self.budget, total),
                total,
                functools.partial(self.schedule, total=total, num_layers=view.num_layers),
            )
            for total in view.total.tolist()
        ]

    def choose(self, view: View) -> Choice:
        """The highest head means of the last row, or nothing."""
        if view.layer_idx != self.after:
            return wipe(view)
        scores = self.read_ahead(view).squeeze(2).mean(1)
        choice = Choice(choose_best(scores, view.mask, self.num_kept(view)))
        remember(view, choice)
        return choice


def find_count_for_mean(mean: int, total: int, schedule: Callable[[int], Sequence[int]]) -> int:
    """R, the visual tokens to keep so that blocks work on `mean` on average, rounded up.

    Parameters
    ----------
    mean : int
        What blocks should work on.
    total : int
        M, visual tokens before pruning.
    schedule : callable
        The visual tokens that each block works on, for the number that is kept: all, then R, then
        perhaps none.

    Raises
    ------
    InputError
        If the blocks before pruning use up the budget alone.
    """
    before = schedule(0)
    spent, depth = sum(before), len(before)
    blocks_of_kept = sum(schedule(1)) - spent
    left = -(-(depth * mean - spent) // blocks_of_kept)
    if left < 1:
        raise InputError(
            f"a mean of {mean} visual tokens over {depth} blocks cannot be reached: the blocks "
            f"before pruning work on all {total}. Ask for at least {spent // depth + 1}, or prune "
            "after fewer blocks."
        )
    return min(left, total)
