"""Granite 4 Vision, whose decoder adds visual features before many layers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from tokencover.families.family import Family, GetPass
from tokencover.families.llava import build_next_layouts
from tokencover.families.qwen import cut_features

if TYPE_CHECKING:
    from tokencover.pruning.hooks import Hooks
    from tokencover.pruning.passes import Pass


def add_features(decoder: Any, hooks: Hooks, get_pass: GetPass) -> None:
    """Add features before layers in place of the decoder, which knows the whole sequence only."""
    taken: WeakKeyDictionary[Pass, tuple[Tensor, Mapping[int, Tensor]]] = WeakKeyDictionary()

    def take(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        current, features = get_pass(), kwargs.get("deepstack_features")
        if current is None or not current.tokens.has_visual or not features:
            return None
        taken[current] = kwargs["vision_mask"].squeeze(-1), features
        return args, {**kwargs, "deepstack_features": None, "vision_mask": None}

    def add(layer_idx: int, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        current = get_pass()
        if current is None or current not in taken or layer_idx not in taken[current][1]:
            return None
        positions, features = taken[current][0], taken[current][1][layer_idx]
        kept = current.find_kept(layer_idx - 1)  # hooks run before tokens are dropped here
        if kept is not None:
            positions, features = cut_features(positions, features, kept)
        states, positions = args[0], positions.to(args[0].device)
        changed = states[positions] + features.to(states.device, states.dtype)
        states = states.masked_scatter(positions.unsqueeze(-1), changed.view(-1))
        return (states, *args[1:]), kwargs

    hooks.before(decoder, take)
    for layer_idx, layer in enumerate(decoder.layers):
        hooks.before(layer, partial(add, layer_idx))


GRANITE4_VISION = Family(
    name="Granite 4 Vision",
    model_types=("granite4_vision",),
    layouts=build_next_layouts,
    projector="model.layerwise_projectors.0",
    tiles=True,
    decoder_hooks=add_features,
    needs={"granite4_vision": "5.20"},
)
"""Granite 4 Vision: LLaVA-Next's views, whose features are added before many layers."""
