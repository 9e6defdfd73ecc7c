"""Answers `View.keys`, `View.attention` and `View.ahead`, and records watched decoder layers.

Fast attention never computes its weights, and eager attention computes all of them. Methods need a
few rows. So queries, keys and rotary embeddings of the layers that a method names are recorded
while they run, and rows are computed from them on request.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.methods import Method
from tokencover.pruning.attention.layer_attention import (
    LayerAttention,
    Letter,
    Past,
    Projections,
    gather_weights,
)
from tokencover.pruning.hooks import is_aside, move_to, run_aside
from tokencover.pruning.passes import CallState, Kept, Pass
from tokencover.pruning.tensor_parallel import TensorParallelGroup

if TYPE_CHECKING:
    from tokencover.pruning.decoder.layers import LayerInputs
    from tokencover.pruning.selection import VisualTokens


@dataclass(frozen=True, slots=True)
class Upcoming:
    """The sequence before a decoder layer that is about to run, with nothing dropped there yet.

    `states` are ``(b, m, d)``; `kept` says which tokens the ``m`` are, None for all. `kwargs` are
    those of the layer's call.
    """

    layer_idx: int
    states: Tensor
    kept: Kept | None
    kwargs: dict[str, Any]


class AttentionReader:
    """Answers `View.keys`, `View.attention` and `View.ahead` for one view.

    Most methods never ask, so everything is computed with the first question. The docstrings of
    `View` describe arguments and results.
    """

    def __init__(
        self,
        current: Pass,
        tokens: VisualTokens,
        upcoming: Upcoming,
        recorders: Mapping[int, Recorder],
        inputs: LayerInputs,
        layers: Sequence[nn.Module],
        ranks: TensorParallelGroup | None,
    ) -> None:
        self._current, self._tokens, self._ranks = current, tokens, ranks
        self._recorders, self._inputs, self._layers = recorders, inputs, layers
        self._layer_idx, self._device = upcoming.layer_idx, upcoming.states.device
        self._upcoming: Upcoming | None = upcoming
        self._foreseen: Projections | None = None

    def close(self) -> None:
        """Release the sequence, which a view that is kept would hold forever."""
        self._upcoming = self._foreseen = None

    def keys(self, block: int, places: Tensor | None = None, *, rotated: bool = False) -> Tensor:
        """The keys ``(b, kv_heads, q, head_dim)`` of tokens in a layer that has run, or is next.

        Positions ``(b, q)`` int64 are by default those of the view's visual tokens; -1 has none.
        """
        attention, made = self._get_projections(block)
        if places is None:
            places = self._tokens.index.masked_fill(~self._tokens.mask, -1)
        else:
            places = self._check(block, places, made.kept)
        slots = self._get_slots(places, made.kept)
        found = attention.get_keys(made, self._tokens.samples, slots, rotated)
        found = self._gather_heads(attention, "k", found)
        missing = (places < 0)[:, None, :, None]
        return found.masked_fill(missing.to(found.device), 0).to(self._device)

    def attention(self, layer_idx: int, queries: Tensor) -> Tensor:
        """The weights ``(b, heads, q, n)`` float32 that tokens give to the view's visual tokens.

        The layer has run or is about to; then nothing is dropped before it. The softmax runs over
        all real tokens that a query ``(b, q)`` attends to. Carries no gradient.
        """
        attention, made = self._get_projections(layer_idx)
        return self._compute_rows(attention, made, self._check(layer_idx, queries, made.kept))

    def ahead(self, layers: Sequence[nn.Module | int], queries: Tensor) -> Tensor:
        """The weights that the last of some layers would give if they ran on the sequence now."""
        upcoming = self._require_upcoming(self._layer_idx)
        queries = self._check(self._layer_idx, queries, upcoming.kept)
        return self._compute_rows(*self._look_ahead(upcoming, layers), queries)

    def _get_projections(self, layer_idx: int) -> tuple[LayerAttention, Projections]:
        """What a watched layer attends with: recorded, or computed if it is about to run."""
        if layer_idx not in self._recorders:
            raise InputError(
                f"Decoder layer {layer_idx} is not watched. Return it from watched_layers to read "
                "its keys or attention."
            )
        attention = self._recorders[layer_idx].attention
        if layer_idx == self._layer_idx:
            # Never what was recorded: with gradient checkpointing that is from after the drop.
            upcoming = self._require_upcoming(layer_idx)
            if self._foreseen is None:
                self._foreseen = self._foresee(attention, upcoming)
            return attention, self._foreseen
        if layer_idx > self._layer_idx or layer_idx not in self._current.recorded:
            raise InputError(
                f"Decoder layer {layer_idx} has not run yet, or its pass is over. Read layers up "
                "to `view.layer_idx`, inside `choose`."
            )
        recorded, kept = self._current.recorded[layer_idx], self._current.find_kept(layer_idx)
        projected = recorded.projections["q"]

        def get_queries(samples: Tensor, slots: Tensor) -> Tensor:
            chosen = projected[samples.to(projected.device), slots.to(projected.device)]
            return attention.finish("q", chosen)

        return attention, Projections(
            attention.finish("k", recorded.projections["k"]),
            get_queries,
            recorded.rotation,
            kept,
            self._get_real(kept),
            recorded.past,
            has_run=True,
            mask=recorded.mask,
        )

    # ---- layers that have not run -------------------------------------------------------------

    def _require_upcoming(self, layer_idx: int) -> Upcoming:
        if self._upcoming is None:
            raise InputError(
                f"Decoder layer {layer_idx} is no longer about to run, or its pass is over. Read "
                "it inside `choose`."
            )
        return self._upcoming

    def _get_real(self, kept: Kept | None) -> Tensor:
        """Which of the ``m`` tokens are no padding, ``(b, m)`` bool."""
        return self._current.tokens.real if kept is None else kept.valid

    def _get_past(self, upcoming: Upcoming) -> Any:
        """The cached keys that the layer will attend to, None if there are none."""
        layer_idx, cache = upcoming.layer_idx, upcoming.kwargs.get("past_key_values")
        columns = functools.partial(self._inputs.get_past_columns, self._current, layer_idx, cache)
        return get_past(cache, layer_idx, columns)

    def _foresee(self, attention: LayerAttention, upcoming: Upcoming) -> Projections:
        """What the layer about to run attends with if nothing is dropped before it."""
        positions = self._inputs.get_unpruned_positions(self._current, upcoming)
        mask = None
        if self._inputs.own_masks:
            mask = self._inputs.build_unpruned_mask(self._current, upcoming)
        states, kept = upcoming.states.detach(), upcoming.kept
        past = self._get_past(upcoming)
        rotation = positions["position_embeddings"]
        return attention.project(states, rotation, kept, self._get_real(kept), past, mask)

    def _look_ahead(
        self, upcoming: Upcoming, layers: Sequence[nn.Module | int]
    ) -> tuple[LayerAttention, Projections]:
        """What the last of some layers attends with after the others ran, without a cache.

        A layer is a module, for example of a twig, or the index of one of the model's own.
        """
        if len(layers) == 0:
            raise InputError("No layers to look ahead with. Pass at least one.")
        if self._inputs.own_masks:
            raise InputError(
                "Layers of this model do not attend to all tokens before each token, so a method "
                "cannot look ahead. Use a method that does not look ahead, for example tc.MoB."
            )
        for each in layers:
            if not isinstance(each, nn.Module) and not 0 <= each < len(self._layers):
                raise InputError(
                    f"Cannot look ahead with decoder layer {each}. The model has layers 0 to "
                    f"{len(self._layers) - 1}."
                )
        modules = [each if isinstance(each, nn.Module) else self._layers[each] for each in layers]
        past = self._get_past(upcoming)
        if past is not None:
            raise InputError(
                f"A method that looks ahead does not support a chat of several turns over a kept "
                f"cache, which has {past.length} tokens. Pass the whole chat without a cache."
            )
        known = [LayerAttention(each, f"look-ahead layer {n}") for n, each in enumerate(modules)]
        positions = self._inputs.get_unpruned_positions(self._current, upcoming)
        real = self._get_real(upcoming.kept)
        states = upcoming.states.detach()
        for layer in modules[:-1]:
            states = _run_layer(layer, states, positions, real)
        rotation = positions["position_embeddings"]
        return known[-1], known[-1].project(states, rotation, upcoming.kept, real, None)

    # ---- from projections to answers ----------------------------------------------------------

    def _get_slots(self, positions: Tensor, kept: Kept | None) -> Tensor:
        """Slots in a sequence of which `kept` is left; any slot where a position is -1."""
        clamped, there = positions.clamp(min=0), positions >= 0
        return self._tokens.get_slots(clamped, there, kept, self._current.length)

    def _compute_rows(
        self, attention: LayerAttention, made: Projections, queries: Tensor
    ) -> Tensor:
        """Weights ``(b, heads, q, n)``: rows of the queries, columns of the visual tokens."""
        tokens, asked = self._tokens, queries >= 0
        slots = self._get_slots(queries, made.kept)
        weights = attention.compute_weights(made, tokens.samples, slots, asked)
        columns = tokens.get_slots(tokens.index, tokens.mask, made.kept, self._current.length)
        columns = (columns + made.past_length)[:, None, None, :]
        found = weights.gather(-1, columns.expand(*weights.shape[:3], -1).to(weights.device))
        found = self._gather_heads(attention, "q", found)
        missing = ~(asked[:, None, :, None] & tokens.mask[:, None, None, :])
        return found.masked_fill(missing.to(found.device), 0).to(self._device)

    def _gather_heads(self, attention: LayerAttention, letter: Letter, found: Tensor) -> Tensor:
        """All heads ``(b, heads, ...)`` of a layer, if this rank has some of them."""
        heads = attention.count_heads(letter, found.shape[1])
        if heads != found.shape[1] and self._ranks is not None:
            found = self._ranks.gather_heads(found)
        if heads != found.shape[1]:
            raise InputError(
                f"{attention.name} has {heads} heads, but {found.shape[1]} of them are known here. "
                "To split a model over several processes, load it with tp_plan='auto'."
            )
        return found

    def _check(self, layer_idx: int, positions: Tensor, kept: Kept | None) -> Tensor:
        """Positions that a method passed, on the device of the masks."""
        real, samples = self._current.tokens.real, self._tokens.samples
        length = self._current.length
        if positions.dim() != 2 or len(positions) != len(samples) or positions.dtype != torch.int64:
            raise InputError(
                f"Positions have shape {tuple(positions.shape)} and type {positions.dtype}. Pass "
                f"int64 positions ({len(samples)}, q), a row for each sample of the view."
            )
        positions = positions.to(samples.device)
        if bool(((positions < -1) | (positions >= length)).any()):
            raise InputError(
                f"Positions range from {int(positions.min())} to {int(positions.max())}, but the "
                f"sequence has {length} tokens. Pass -1 for none."
            )
        alive = real if kept is None else kept.mask(length)
        wrong = (positions >= 0) & ~alive[samples].gather(1, positions.clamp(min=0))
        if bool(wrong.any()):
            row, column = wrong.nonzero()[0].tolist()
            position = int(positions[row, column])
            is_real = bool(real[samples[row], position])
            raise InputError(
                f"Token {position} of sample {row} of the view "
                f"{'was dropped before layer' if is_real else 'is padding in layer'} {layer_idx}, "
                "so it has neither key nor attention there. Pass tokens that were kept."
            )
        return positions


def _run_layer(layer: Any, states: Tensor, positions: dict[str, Any], real: Tensor) -> Tensor:
    """Run a decoder layer aside on states ``(b, m, d)``, without a cache."""
    from transformers.masking_utils import create_causal_mask

    states = move_to(layer, states)
    mask = create_causal_mask(
        config=layer.self_attn.config,
        inputs_embeds=states,
        attention_mask=real.to(states.device),
        past_key_values=None,
    )
    numbers, tables = positions["position_ids"], positions["position_embeddings"]
    arguments = {
        **positions,
        "attention_mask": mask,
        "position_ids": None if numbers is None else numbers.to(states.device),
        "position_embeddings": tuple(table.to(states.device) for table in tables),
        "past_key_values": None,
        "use_cache": False,
    }
    with gather_weights(layer):
        output = run_aside(lambda: layer(states, **arguments))
    found: Tensor = output[0] if isinstance(output, tuple) else output
    return found


# ---- recording layers while they run ----------------------------------------------------------


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
            attending = [place for place, each in enumerate(layers) if hasattr(each, "self_attn")]
            near = sorted(attending, key=lambda place: (abs(place - number), place))[:2]
            raise InputError(
                f"{type(method).__name__} reads the attention of decoder layer {number}, which has "
                "none: it is linear attention or a convolution. Read layer "
                f"{' or '.join(map(str, sorted(near)))} by pruning elsewhere, or use a method that "
                "reads no attention, for example tc.MoB."
            )
    return {number: Recorder(number, layers[number], state, inputs) for number in watched}
