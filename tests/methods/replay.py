"""Play back what a method chose, so that a recomputation makes the same choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tokencover.families import family_of
from tokencover.methods import Choice, Method, TowerChoice, TowerView, View
from tokencover.pruning.prune import prune


@dataclass(eq=False)
class Taped(Method):
    """Another method, with its choices written down by block; or played back from there."""

    inner: Method
    tape: dict[int, Choice] = field(default_factory=dict)
    playing: bool = False

    def __post_init__(self) -> None:
        for name in (
            "positions", "reads_prompt", "drops_newlines", "merges", "inside_tower_blocks",
            "proportional_attention",
        ):  # fmt: skip
            setattr(self, name, getattr(self.inner, name))

    def blocks(self, depth: int) -> Sequence[int]:
        return self.inner.blocks(depth)

    def shows_newlines(self, block: int, depth: int) -> bool:
        return self.inner.shows_newlines(block, depth)

    def watched(self, depth: int) -> Sequence[int]:
        return self.inner.watched(depth)

    def encoder_blocks(self, depth: int, feature_block: int) -> Sequence[int] | None:
        return self.inner.encoder_blocks(depth, feature_block)

    def tower_blocks(self, depth: int, feature_block: int) -> Sequence[int]:
        return self.inner.tower_blocks(depth, feature_block)

    def choose_in_tower(self, view: TowerView) -> TowerChoice:
        return self.inner.choose_in_tower(view)

    def choose(self, view: View) -> Choice:
        if not self.playing:
            choice = self.inner.choose(view)
            assert view.block not in self.tape
            self.tape[view.block] = choice
        return self.tape[view.block]


def logits_of(model: Any, method: Method, inputs: dict[str, Any], prompt: torch.Tensor) -> Any:
    """Logits of a pass without cache, and what was kept.

    Positions begin after the padding, as `generate` has them: rotated keys, which DART looks at,
    depend on them.
    """
    if not family_of(model).several_axes:
        positions = (inputs["attention_mask"].cumsum(-1) - 1).clamp(min=0)
        inputs = {**inputs, "position_ids": positions}
    with torch.no_grad(), prune(model, method, prompt=prompt) as run:
        return model(**inputs, use_cache=False).logits, run.trace
