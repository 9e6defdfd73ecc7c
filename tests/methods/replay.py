"""Play back what a method chose, so that a recomputation makes the same choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tokencover.families import family_of
from tokencover.methods import Choice, Method, View, VisionMerge, VisionView
from tokencover.pruning.prune import prune


@dataclass(eq=False)
class Taped(Method):
    """Another method, with its choices written down by block; or played back from there."""

    inner: Method
    tape: dict[int, Choice] = field(default_factory=dict)
    playing: bool = False

    def __post_init__(self) -> None:
        for name in (
            "positions", "reads_prompt", "drops_newlines", "merges", "inside_vision_blocks",
            "proportional_attention",
        ):  # fmt: skip
            setattr(self, name, getattr(self.inner, name))

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        return self.inner.pruning_layers(num_layers)

    def shows_newlines(self, layer_idx: int, num_layers: int) -> bool:
        return self.inner.shows_newlines(layer_idx, num_layers)

    def watched_layers(self, num_layers: int) -> Sequence[int]:
        return self.inner.watched_layers(num_layers)

    def watched_vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int] | None:
        return self.inner.watched_vision_blocks(num_blocks, feature_block)

    def vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        return self.inner.vision_blocks(num_blocks, feature_block)

    def merge_in_vision_encoder(self, view: VisionView) -> VisionMerge:
        return self.inner.merge_in_vision_encoder(view)

    def choose(self, view: View) -> Choice:
        if not self.playing:
            choice = self.inner.choose(view)
            assert view.layer_idx not in self.tape
            self.tape[view.layer_idx] = choice
        return self.tape[view.layer_idx]


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
