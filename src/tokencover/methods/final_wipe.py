"""FinalWipe, a part of TwigVLM (ICCV 2025)."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from tokencover.errors import InputError
from tokencover.methods._shared.decoder import check_wipe, record_details, resolve_wipe_layer, wipe
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
    """Run a method, and drop all visual tokens, newline tokens included, before a late layer.

    https://arxiv.org/abs/2503.14075. With ``budget_mode="layer_mean"`` or ``"flops"`` the inner
    method keeps more tokens, because the last layers process none. The trace records the tokens
    kept until the wipe in ``details["wiped"]``.

    Parameters
    ----------
    inner : Method
        The method that prunes before; all its layers must come before the wipe.
    block : int or float
        The layer before which all tokens are dropped: its index, or a fraction of the depth,
        rounded to the nearest layer. 0.75 by default, layer 24 of 32.
    """

    name: ClassVar[str] = "final_wipe"
    card: ClassVar[Card] = Card(
        title="FinalWipe",
        year=2025,
        objective="none",
        pruning_point="after 24 of 32 decoder layers, in addition",
        signal="none: drops all visual tokens",
        paper="2503.14075",
        needs=("another method",),
    )

    inner: Method
    block: int | float = 0.75

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Method) or isinstance(self.inner, FinalWipe):
            raise InputError(
                "FinalWipe wraps another method, as in FinalWipe(tc.MoB(budget=64)); got "
                f"{self.inner!r}."
            )
        check_wipe(self.block)
        for name in SAME_AS_INNER:
            object.__setattr__(self, name, getattr(self.inner, name))

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        """Return the layers of the inner method and that of the wipe."""
        stages = tuple(self.inner.pruning_layers(num_layers))
        return (*stages, resolve_wipe_layer(self.block, num_layers, stages))

    def shows_newlines(self, layer_idx: int, num_layers: int) -> bool:
        """Newline tokens are dropped with the rest, whatever the inner method does with them."""
        return layer_idx == self.pruning_layers(num_layers)[-1] or self.inner.shows_newlines(
            layer_idx, num_layers
        )

    def schedule(self, num_kept: int, total: int, num_layers: int) -> list[int]:
        """Return the number of visual tokens per layer, 0 after the wipe."""
        if not isinstance(self.inner, BudgetedMethod):
            raise InputError(
                f"{type(self.inner).__name__} has no budget, so its schedule is not known."
            )
        end = self.pruning_layers(num_layers)[-1]
        return [*self.inner.schedule(num_kept, total, num_layers)[:end], *[0] * (num_layers - end)]

    def choose(self, view: View) -> Choice:
        """Keep what the inner method keeps, or nothing."""
        if view.layer_idx == self.pruning_layers(view.num_layers)[-1]:
            return wipe(view)
        choice = self._wiped_inner.choose(view)
        record_details(view, choice)
        return choice

    @functools.cached_property
    def _wiped_inner(self) -> Method:
        """The inner method, with a schedule that includes the wipe."""
        inner = copy.copy(self.inner)
        if isinstance(inner, BudgetedMethod):
            object.__setattr__(inner, "schedule", self.schedule)
        return inner

    def watched_layers(self, num_layers: int) -> Sequence[int]:
        """Those of the inner method."""
        return self.inner.watched_layers(num_layers)

    def watched_vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int] | None:
        """Those of the inner method."""
        return self.inner.watched_vision_blocks(num_blocks, feature_block)

    def vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        """Those of the inner method."""
        return self.inner.vision_blocks(num_blocks, feature_block)

    def merge_in_vision_encoder(self, view: VisionView) -> VisionMerge:
        """Merge as the inner method."""
        return self.inner.merge_in_vision_encoder(view)
