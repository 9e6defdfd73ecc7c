"""A method that keeps random tokens: the runtime's tests must not depend on any one rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tokencover.methods import Choice, Method, View
from tokencover.methods.base import Positions


@dataclass(frozen=True)
class KeepRandom(Method):
    """Keep `budget` random tokens before each stage, fewer at each; all if `budget` is None.

    The choice depends on the number of tokens and the stage only, so that a sample gets the same
    one alone, in a batch and in every beam.
    """

    reads_prompt = False

    budget: int | None
    stages: tuple[int, ...] = (1,)
    drops_newlines: bool = True
    merges: bool = False
    positions: Positions = "original"

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        return self.stages

    def choose(self, view: View) -> Choice:
        counts = view.mask.sum(-1).tolist()
        kept = [self._kept(view, count) for count in counts]
        states = view.hidden_states * 1.5 if self.merges else None
        return Choice(kept, states)

    def _kept(self, view: View, count: int) -> Tensor:
        if self.budget is None:
            return torch.arange(count)
        left = self.budget - 2 * self.stages.index(view.layer_idx)
        generator = torch.Generator().manual_seed(100 * count + view.layer_idx)
        return torch.randperm(count, generator=generator)[:left]


def dropped_by(method: KeepRandom, inputs: dict[str, Tensor], visual: Tensor) -> dict[int, Tensor]:
    """What the method drops before each of its blocks, worked out the slow way."""
    gone: dict[int, Tensor] = {}
    left = visual.clone()
    for stage in method.stages:
        gone[stage] = torch.zeros_like(visual)
        for row, mask in enumerate(left):
            positions = mask.nonzero().squeeze(-1)
            if len(positions) == 0:
                continue
            view = _OnlyLayer(stage)
            kept = set(method._kept(view, len(positions)).tolist())  # type: ignore[arg-type]
            for number, position in enumerate(positions.tolist()):
                if number not in kept:
                    gone[stage][row, position] = True
        left = left & ~gone[stage]
    return gone


@dataclass
class _OnlyLayer:
    layer_idx: int
