"""Random tokens: the control every method must beat.

Place: before a decoder block, by default after one block has run. Signal: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tokencover.errors import InputError
from tokencover.methods.base import ActsOnce, Card, Choice, View
from tokencover.methods.registry import register_method

_SEEDS = 2**63
_STRIDE = 1_000_003
"""Sets the seeds of samples of different length apart."""


@register_method
@dataclass(frozen=True)
class Random(ActsOnce):
    """Keep visual tokens by lot.

    The lot depends on the seed and on the number of tokens alone: a sample keeps the same ones in
    every batch, and a larger budget keeps those of a smaller one too.

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` and `positions` see `BudgetedMethod`.
    after : int
        How many decoder blocks run before pruning.
    seed : int
        Another seed, another lot.
    """

    name: ClassVar[str] = "random"
    card: ClassVar[Card] = Card(
        title="Random",
        year=None,
        objective="none",
        pruning_point="after 1 decoder block",
        signal="none: tokens are drawn by a seeded lot",
    )
    reads_prompt = False

    after: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise InputError(f"seed must be an integer of at least 0, got {self.seed!r}.")

    def choose(self, view: View) -> Choice:
        """Draw for every sample."""
        sizes = view.mask.sum(-1).tolist()
        kept = [
            self._draw(size, left) for size, left in zip(sizes, self.num_kept(view), strict=True)
        ]
        return Choice([each.to(view.mask.device) for each in kept])

    def _draw(self, size: int, count: int) -> Tensor:
        # A generator of its own, on the CPU: the model's random numbers stay what they were, and
        # every device draws the same.
        generator = torch.Generator().manual_seed((self.seed * _STRIDE + size) % _SEEDS)
        return torch.randperm(size, generator=generator)[:count]
