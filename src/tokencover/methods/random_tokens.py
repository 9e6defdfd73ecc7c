"""Random tokens: the control that every method must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tokencover.methods.base import ActsOnce, Card, Choice, View
from tokencover.methods.registry import register_method

_SEEDS = 2**63
_STRIDE = 1_000_003
"""Separates the seeds of samples of different length."""


@register_method
@dataclass(frozen=True)
class Random(ActsOnce):
    """Keep a seeded random sample of the visual tokens.

    It depends only on the seed and the number of tokens: a sample keeps the same tokens in every
    batch, and a larger budget includes the tokens of a smaller one.

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` and `positions` see `BudgetedMethod`.
    after : int
        How many decoder layers run before pruning; 1 by default.
    seed : int
        Random seed; 0 by default.
    """

    name: ClassVar[str] = "random"
    card: ClassVar[Card] = Card(
        title="Random",
        year=None,
        objective="none",
        pruning_point="after 1 decoder layer",
        signal="none: a seeded random sample",
    )
    reads_prompt = False
    setting_minimums: ClassVar = {"seed": 0}

    after: int = 1
    seed: int = 0

    def choose(self, view: View) -> Choice:
        """Draw the tokens of every sample."""
        sizes = view.mask.sum(-1).tolist()
        kept = [
            self._draw(size, count) for size, count in zip(sizes, self.num_kept(view), strict=True)
        ]
        return Choice([index.to(view.mask.device) for index in kept])

    def _draw(self, size: int, count: int) -> Tensor:
        # A separate generator on the CPU: the global random state does not change, and every
        # device draws the same.
        generator = torch.Generator().manual_seed((self.seed * _STRIDE + size) % _SEEDS)
        return torch.randperm(size, generator=generator)[:count]
