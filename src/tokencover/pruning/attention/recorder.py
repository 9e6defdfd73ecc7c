"""Records what watched decoder layers work with while they run.

Fast attention never computes its weights, and eager attention computes all of them. Methods need a
few rows. So queries, keys and rotary embeddings of the layers that a method names are recorded, and
rows are computed from them on request.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.methods import Method
from tokencover.pruning.attention.layer_attention import LayerAttention, Past
from tokencover.pruning.hooks import is_aside
from tokencover.pruning.passes import CallState, Pass

if TYPE_CHECKING:
    from tokencover.pruning.decoder.layers import LayerInputs


def get_past(cache: Any, index: int, columns: Callable[[], Tensor | None]) -> Past | None:
    """What layer `index` of a cache contains before this pass; None if nothing.

    `columns` returns which of its columns are real tokens, None if all are.
    """
    if cache is None:
        return None
    layers = getattr(cache, "layers", None)
    if layers is None:  # a cache of another kind
        length = int(cache.get_seq_length(index))
        return Past(None, length, None, readable=False) if length else None
    if index < len(layers) and not hasattr(layers[index], "get_seq_length"):
        length = int(cache.get_seq_length())  # linear attention has a state instead of keys
        return Past(layers[index], length, None, readable=False) if length else None
    length = int(layers[index].get_seq_length()) if index < len(layers) else 0
    if length == 0:
        return None
    real = columns()
    real = None if real is None else real[:, :length]
    readable = not getattr(cache, "offloading", False)
    if not getattr(layers[index], "is_sliding", False):
        return Past(layers[index], length, real, readable)
    length = int(layers[index].get_mask_sizes(0)[0])
    real = None if real is None else real[:, -length:]
    return Past(layers[index], length, real, readable, layers[index].keys[:, :, -length:])


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one layer worked with in one pass, with ``m`` tokens.

    `rotation` are cosines and sines, ``(b or 1, m, rotated dims)`` each. `mask` is set if the layer
    has its own, see `Projections`. `projections` are "q" and "k", ``(b, m, ...)`` each, for
    `LayerAttention.finish`.
    """

    rotation: tuple[Tensor, Tensor]
    past: Past | None
    mask: Tensor | None
    projections: dict[str, Tensor] = field(default_factory=dict)


class Recorder:
    """Records one decoder layer, in passes with visual tokens.

    Everything is detached: gradients reach a merging method through ``view.hidden_states``.
    """

    def __init__(
        self, layer_idx: int, layer: nn.Module, state: CallState, inputs: LayerInputs
    ) -> None:
        self.attention = LayerAttention(layer, f"decoder layer {layer_idx}")
        self._layer_idx, self._state, self._inputs = layer_idx, state, inputs

    def list_hooks(self) -> Iterator[tuple[nn.Module, Callable[..., None], bool]]:
        """Modules, their hooks, and whether each runs before its module."""
        yield self.attention.module, self._begin, True
        yield self.attention.get_last_part("q"), functools.partial(self._record, "q"), False
        yield self.attention.get_last_part("k"), functools.partial(self._record, "k"), False

    def _get_pass(self) -> Pass | None:
        current = self._state.current
        return None if current is None or not current.tokens.has_visual or is_aside() else current

    def _begin(self, module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        current = self._get_pass()
        if current is None:
            return
        # Detached tensors are other objects, so they do not name a pass: see `RerunPasses`.
        cosines, sines = (table.detach() for table in kwargs["position_embeddings"])
        cache = kwargs.get("past_key_values")
        columns = functools.partial(self._inputs.get_past_columns, current, self._layer_idx, cache)
        past = get_past(cache, self.attention.module.layer_idx, columns)
        mask = kwargs.get("attention_mask") if self._inputs.own_masks else None
        current.recorded[self._layer_idx] = Recorded((cosines, sines), past, mask)

    def _record(
        self, letter: str, module: nn.Module, args: Any, kwargs: Any, output: Tensor
    ) -> None:
        current = self._get_pass()
        if current is not None and self._layer_idx in current.recorded:
            current.recorded[self._layer_idx].projections[letter] = output.detach()


def build_recorders(
    method: Method,
    layers: Sequence[nn.Module],
    stages: Sequence[int],
    state: CallState,
    inputs: LayerInputs,
) -> dict[int, Recorder]:
    """One recorder per layer that the method watches; `stages` are its pruning layers."""
    watched = tuple(method.watched_layers(len(layers)))
    if any(number < 0 or number > max(stages, default=-1) for number in watched):
        raise InputError(
            f"{type(method).__name__} watches layers {watched} and prunes before layers "
            f"{tuple(stages)}. A layer can be watched only if it runs before the last of these, or "
            "is the last itself."
        )
    for number in watched:
        if not hasattr(layers[number], "self_attn"):
            raise _build_no_attention_error(method, number, layers)
    return {number: Recorder(number, layers[number], state, inputs) for number in watched}


def _build_no_attention_error(
    method: Method, layer_idx: int, layers: Sequence[nn.Module]
) -> InputError:
    """For linear attention or a convolution: name the nearest layers with attention."""
    attending = [number for number, layer in enumerate(layers) if hasattr(layer, "self_attn")]
    near = sorted(attending, key=lambda number: (abs(number - layer_idx), number))[:2]
    names = " or ".join(map(str, sorted(near)))
    return InputError(
        f"{type(method).__name__} reads the attention of decoder layer {layer_idx}, which has none:"
        f" it is linear attention or a convolution. Read layer {names} by pruning elsewhere, or use"
        " a method that reads no attention, for example tc.MoB."
    )
