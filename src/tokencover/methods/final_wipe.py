"""FinalWipe, a part of TwigVLM (ICCV 2025, arXiv 2503.14075).

Place: before a late decoder block, at three quarters of the depth by default, on top of any other
method. Signal: none; by then the words have taken from the picture what they need.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from tokencover.errors import InputError
from tokencover.methods._shared.wipe import check_wipe, find_wipe_block, remember, wipe
from tokencover.methods.base import (
    BudgetedMethod,
    Card,
    Choice,
    Method,
    View,
    VisionMerge,
    VisionView,
)
from tokencover.methods.registry import register_method

SAME_AS_INNER: Final = (
    "positions",
    "reads_prompt",
    "drops_newlines",
    "merges",
    "inside_vision_blocks",
    "proportional_attention",
)


@register_method
@dataclass(frozen=True)
class FinalWipe(Method):
    """Run a method, and drop all visual tokens, newline tokens too, before a late block.

    With ``budget_mode="layer_mean"`` or ``"flops"`` the inner method keeps more tokens than it
    would alone, because the last blocks work on none. The trace's details tell which tokens were
    there until the wipe: ``details["wiped"]``, beside what the inner method has to say.

    Parameters
    ----------
    inner : Method
        What chooses tokens before that; all its blocks must lie before the wipe.
    block : int or float
        The block before which nothing stays: its number, or a share of the depth (0.75 is block 24
        of 32), taken to the nearest block.
    """

    name: ClassVar[str] = "final_wipe"
    card: ClassVar[Card] = Card(
        title="FinalWipe",
        year=2025,
        objective="none",
        pruning_point="after 24 of 32 decoder blocks, on top",
        signal="none: all visual tokens go",
        paper="2503.14075",
        needs=("another method",),
    )

    inner: Method
    block: int | float = 0.75

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Method) or isinstance(self.inner, FinalWipe):
            raise InputError(
                "FinalWipe goes on top of another method, as in FinalWipe(tc.MoB(budget=64)); got "
                f"{self.inner!r}."
            )
        check_wipe(self.block)
        for name in SAME_AS_INNER:
            object.__setattr__(self, name, getattr(self.inner, name))

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        """Those of the inner method, and the wipe."""
        stages = tuple(self.inner.pruning_layers(num_layers))
        return (*stages, find_wipe_block(self.block, num_layers, stages))

    def shows_newlines(self, layer_idx: int, num_layers: int) -> bool:
        """Newline tokens are wiped with the rest, whatever the inner method does with them."""
        return layer_idx == self.pruning_layers(num_layers)[-1] or self.inner.shows_newlines(
            layer_idx, num_layers
        )

    def schedule(self, num_kept: int, total: int, num_layers: int) -> list[int]:
        """The visual tokens each decoder block works on: see `BudgetedMethod.schedule`."""
        if not isinstance(self.inner, BudgetedMethod):
            raise InputError(
                f"{type(self.inner).__name__} has no budget, so nothing is known of its schedule."
            )
        end = self.pruning_layers(num_layers)[-1]
        return [*self.inner.schedule(num_kept, total, num_layers)[:end], *[0] * (num_layers - end)]

    def choose(self, view: View) -> Choice:
        """What the inner method keeps, or nothing."""
        if view.layer_idx == self.pruning_layers(view.num_layers)[-1]:
            return wipe(view)
        choice = self._wiped_inner.choose(view)
        remember(view, choice)
        return choice

    @functools.cached_property
    def _wiped_inner(self) -> Method:
        """The inner method, which counts on the wipe when it turns a budget into a number."""
        inner = copy.copy(self.inner)
        if isinstance(inner, BudgetedMethod):
            object.__setattr__(inner, "schedule", self.schedule)
        return inner

    def watched_layers(self, num_layers: int) -> Sequence[int]:
        """As the inner method."""
        return self.inner.watched_layers(num_layers)

    def watched_vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int] | None:
        """As the inner method."""
        return self.inner.watched_vision_blocks(num_blocks, feature_block)

    def vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        """As the inner method."""
        return self.inner.vision_blocks(num_blocks, feature_block)

    def merge_in_vision_encoder(self, view: VisionView) -> VisionMerge:
        """As the inner method."""
        return self.inner.merge_in_vision_encoder(view)
