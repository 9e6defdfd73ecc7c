"""Answers what a method asks about keys and attention of decoder layers: `View.keys` and others."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.pruning.attention.layer_attention import (
    LayerAttention,
    Letter,
    Projections,
    gather_weights,
)
from tokencover.pruning.attention.recorder import Recorder, get_past
from tokencover.pruning.hooks import move_to, run_aside
from tokencover.pruning.passes import Kept, Pass
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

    def _get_positions(self, upcoming: Upcoming) -> dict[str, Any]:
        """The position arguments of the layer if nothing were dropped before it."""
        return self._inputs.get_unpruned_positions(
            self._current, upcoming.layer_idx, upcoming.states, upcoming.kept, upcoming.kwargs
        )

    def _get_past(self, upcoming: Upcoming) -> Any:
        """The cached keys that the layer will attend to, None if there are none."""
        layer_idx, cache = upcoming.layer_idx, upcoming.kwargs.get("past_key_values")
        columns = functools.partial(self._inputs.get_past_columns, self._current, layer_idx, cache)
        return get_past(cache, layer_idx, columns)

    def _foresee(self, attention: LayerAttention, upcoming: Upcoming) -> Projections:
        """What the layer about to run attends with if nothing is dropped before it."""
        rotation = self._get_positions(upcoming)["position_embeddings"]
        mask = None
        if self._inputs.own_masks:
            mask = self._inputs.build_unpruned_mask(
                self._current, upcoming.layer_idx, upcoming.kept, upcoming.kwargs
            )
        states, kept = upcoming.states.detach(), upcoming.kept
        past = self._get_past(upcoming)
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
        modules = [self._resolve_layer(each) for each in layers]
        past = self._get_past(upcoming)
        if past is not None:
            raise InputError(
                f"A method that looks ahead does not support a chat of several turns over a kept "
                f"cache, which has {past.length} tokens. Pass the whole chat without a cache."
            )
        known = [LayerAttention(each, f"look-ahead layer {n}") for n, each in enumerate(modules)]
        positions, real = self._get_positions(upcoming), self._get_real(upcoming.kept)
        states = upcoming.states.detach()
        for layer in modules[:-1]:
            states = _run_layer(layer, states, positions, real)
        rotation = positions["position_embeddings"]
        return known[-1], known[-1].project(states, rotation, upcoming.kept, real, None)

    def _resolve_layer(self, layer: nn.Module | int) -> nn.Module:
        if isinstance(layer, nn.Module):
            return layer
        if not 0 <= layer < len(self._layers):
            raise InputError(
                f"Cannot look ahead with decoder layer {layer}. The model has layers 0 to "
                f"{len(self._layers) - 1}."
            )
        return self._layers[layer]

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
        real, samples, length = (
            self._current.tokens.real,
            self._tokens.samples,
            self._current.length,
        )
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
    with gather_weights(layer), torch.no_grad():
        output = run_aside(lambda: layer(states, **arguments))
    found: Tensor = output[0] if isinstance(output, tuple) else output
    return found
