"""What a decoder layer gets beside its hidden states after pruning: a mask, positions, a cache.

Layers between two pruning layers form a group, named after its first layer. They share positions,
and one mask per type of layer.
"""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tokencover.errors import InputError, InternalsError, TokenCoverWarning
from tokencover.families import RECURRENT, Family, list_layer_types
from tokencover.methods import Method, name_method
from tokencover.pruning.decoder.cache import PrunedCache, Pruning, mark_pruned
from tokencover.pruning.decoder.masks import (
    Columns,
    build_own_mask,
    check_plain,
    check_readable,
    cut_to_layer,
    get_origins,
)
from tokencover.pruning.passes import CallState, Kept, Pass

if TYPE_CHECKING:
    from tokencover.pruning.attention.reader import Upcoming


@dataclass(slots=True)
class LayerGroup:
    """What the layers of a group share in a pass.

    `columns` ``(b, cached + new)`` bool marks real tokens among earlier and new ones; `origins`
    int64 are their positions in the whole sequence, where masks are cut from those of the whole
    sequence. `positions` are reindexed, with their rotary embedding. `masks` are by type of layer.
    """

    columns: Tensor | None = None
    origins: Tensor | None = None
    positions: tuple[Tensor, Any] | None = None
    masks: dict[str, Any] = field(default_factory=dict)


class LayerInputs:
    """Masks and positions for shortened sequences.

    `token_arguments` names arguments of layers with one entry per token, see `Family`.
    """

    def __init__(self, decoder: Any, pruning: Pruning, token_arguments: Sequence[str] = ()) -> None:
        self._token_arguments = token_arguments
        self._decoder, self._config = decoder, decoder.config
        self._pruning, self.own_masks = pruning, pruning.own_masks
        self._reindexes = pruning.positions != "original"
        self._kinds = list_layer_types(decoder)

    def announce(self, layer_idx: int, cache: Any) -> None:
        """Tell a pruned cache which layer adds to it next."""
        if isinstance(cache, PrunedCache):
            cache.announce(layer_idx, self._pruning)

    def shorten(
        self, current: Pass, layer_idx: int, states: Tensor, kwargs: dict[str, Any]
    ) -> dict[str, Any] | None:
        """A layer's keyword arguments for the kept states; None if they need no change."""
        cache, group = kwargs.get("past_key_values"), self._get_group(layer_idx)
        kept = current.find_kept(layer_idx)
        if group is None or (kept is None and _get_remembered(cache, group) is None):
            return self._cut_unpruned(current, group, layer_idx, states, kwargs)
        shared = current.groups.setdefault(group, LayerGroup())
        if shared.columns is None:
            shared.columns = self._build_columns(current, group, kept, cache)
            if self.own_masks:
                check_readable(self._config, cache)
                shared.origins = get_origins(current, group, kept, cache)
            self._remember(current, group, layer_idx, kept, cache)
        if kept is not None and isinstance(cache, PrunedCache):
            cache.record_lacking(layer_idx, current.length - kept.index.shape[1])
        changed = {
            **kwargs,
            "position_ids": self._shorten_position_ids(kwargs.get("position_ids"), kept),
        }
        changed["attention_mask"] = self._get_mask(current, group, layer_idx, states, kwargs)
        if self._reindexes:
            if shared.positions is None:
                shared.positions = self._reindex(states, shared.columns)
            numbers, rotation = shared.positions
            changed["position_ids"] = self._shorten_position_ids(numbers, None)
            changed["position_embeddings"] = rotation
        elif kept is not None:
            changed["position_embeddings"] = _cut_rotation(kwargs["position_embeddings"], kept)
        return {**changed, **self._shorten_token_arguments(kwargs, kept)}

    def cut_shared(
        self,
        state: CallState,
        original: Callable[..., tuple[Any, ...]],
        states: Tensor,
        others: Tensor | None,
        rotations: dict[str, Any],
        masks: dict[str, Any],
        last: Any,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Inputs of the layers that share earlier keys, for all kept tokens or the last of them.

        Since transformers 5.23, Gemma 4 runs them on the `last` tokens only. It cuts what it gets
        here, and its layers need no further change.
        """
        current = state.current
        if current is None:
            return original(states, others, rotations, masks, last, **kwargs)
        current.cut_from = current.layer_idx + 1
        shared = current.groups.get(self._get_group(current.cut_from), LayerGroup())
        masks = {kind: shared.masks.get(kind, mask) for kind, mask in masks.items()}
        kept = current.find_kept(current.cut_from)
        if kept is not None:
            others = None if others is None else kept.take(others)
            rotations = {kind: _cut_rotation(each, kept) for kind, each in rotations.items()}
            if isinstance(last, int) and not kept.ends_in(last, current.length):
                last = 0  # all tokens
        return original(states, others, rotations, masks, last, **kwargs)

    def shorten_others(self, others: tuple[Any, ...], kept: Kept | None) -> tuple[Any, ...]:
        """Positional arguments with one entry per token, beside hidden states (Gemma 4)."""
        if kept is None:
            return others
        return tuple(kept.take(each) if isinstance(each, Tensor) else each for each in others)

    def get_unpruned_positions(self, current: Pass, upcoming: Upcoming) -> dict[str, Any]:
        """Position arguments for a pruning layer if nothing were dropped before it."""
        layer_idx, kept, kwargs = upcoming.layer_idx, upcoming.kept, upcoming.kwargs
        cache = kwargs.get("past_key_values")
        shortened = kept is not None or _get_remembered(cache, layer_idx) is not None
        position_ids, rotation = kwargs.get("position_ids"), kwargs["position_embeddings"]
        more = self._shorten_token_arguments(kwargs, kept)
        if self._reindexes and shortened:
            columns = self._build_columns(current, layer_idx, kept, cache)
            position_ids, rotation = self._reindex(upcoming.states, columns)
            kept = None
        elif kept is not None:
            rotation = _cut_rotation(rotation, kept)
        position_ids = self._shorten_position_ids(position_ids, kept)
        return {"position_ids": position_ids, "position_embeddings": rotation, **more}

    def build_unpruned_mask(self, current: Pass, upcoming: Upcoming) -> Tensor | None:
        """The own mask of a pruning layer if nothing were dropped before it."""
        layer_idx, kept, kwargs = upcoming.layer_idx, upcoming.kept, upcoming.kwargs
        cache = kwargs.get("past_key_values")
        seen = self._build_columns(current, layer_idx, kept, cache)
        columns = Columns(get_origins(current, layer_idx, kept, cache), seen)
        return build_own_mask(self._decoder, current, layer_idx, kept, columns, kwargs)

    def get_past_columns(self, current: Pass | None, layer_idx: int, cache: Any) -> Tensor | None:
        """Which cached columns of a layer are real tokens, None if all are."""
        group = self._get_group(layer_idx)
        remembered = None if group is None else _get_remembered(cache, group)
        if remembered is not None:
            return remembered
        return None if current is None else current.tokens.past

    def _get_group(self, layer_idx: int) -> int | None:
        """The group of a layer; None before the first."""
        return max((first for first in self._pruning.groups if first <= layer_idx), default=None)

    def _build_columns(self, current: Pass, group: int, kept: Kept | None, cache: Any) -> Tensor:
        """What the layers of a group attend to: see `LayerGroup`."""
        columns = current.tokens.real if kept is None else kept.valid
        if cache is None:
            return columns
        past = _get_remembered(cache, group)
        past = current.tokens.past if past is None else past
        if past is None:  # the model got no mask, so whatever is cached is real
            past = columns.new_ones(len(columns), current.tokens.before)
        return torch.cat([past.to(columns.device), columns], dim=1)

    def _remember(
        self, current: Pass, group: int, layer_idx: int, kept: Kept | None, cache: Any
    ) -> None:
        """Let the cache know what its layers of a group are going to hold."""
        if cache is None:
            return
        pruned, shared = mark_pruned(cache, self._pruning), current.groups[group]
        pruned.announce(layer_idx, self._pruning)
        assert shared.columns is not None
        pruned.remember(group, shared.columns, shared.origins)
        if kept is not None:
            end = kept.get_end_of_dropped(current.tokens.real)
            pruned.record_dropped(current.tokens.before + end)

    def _cut_unpruned(
        self,
        current: Pass,
        group: int | None,
        layer_idx: int,
        states: Tensor,
        kwargs: dict[str, Any],
    ) -> dict[str, Any] | None:
        """A layer's keyword arguments where nothing was dropped; None if they need no change."""
        cache = kwargs.get("past_key_values")
        if not self.own_masks or not isinstance(cache, PrunedCache):
            return None
        masks, kind = current.groups.setdefault(group, LayerGroup()).masks, self._kinds[layer_idx]
        if kind not in masks:
            masks[kind] = cut_to_layer(self._decoder, layer_idx, states, kwargs)
        mask = masks[kind]
        return {**kwargs, "attention_mask": None if mask is None else mask.to(states.device)}

    def _get_mask(
        self, current: Pass, group: int, layer_idx: int, states: Tensor, kwargs: dict[str, Any]
    ) -> Any:
        """The mask of a group's layers of one type, built once per pass."""
        shared, kind = current.groups[group], self._kinds[layer_idx]
        if kind not in shared.masks:
            cache = kwargs.get("past_key_values")
            if kind in RECURRENT:
                mask = self._build_padding_mask(current, group, layer_idx, states, cache)
            elif self.own_masks:
                if get_argument(kwargs, "attention_mask", self._decoder.layers[layer_idx]) is None:
                    check_plain(self._decoder, current, layer_idx)
                assert shared.origins is not None
                assert shared.columns is not None
                columns = Columns(shared.origins, shared.columns)
                kept = current.find_kept(layer_idx)
                mask = build_own_mask(self._decoder, current, layer_idx, kept, columns, kwargs)
            else:
                mask = self._build_mask(shared, layer_idx, states, cache)
            shared.masks[kind] = mask
        mask = shared.masks[kind]
        return mask.to(states.device) if isinstance(mask, Tensor) else mask

    def _build_mask(self, shared: LayerGroup, layer_idx: int, states: Tensor, cache: Any) -> Any:
        """For attention: what each token attends to."""
        from transformers.masking_utils import create_causal_mask

        arguments = {"config": self._config, "inputs_embeds": states, "layer_idx": layer_idx}
        arguments |= {"attention_mask": shared.columns, "past_key_values": cache}
        if not isinstance(cache, PrunedCache):
            return create_causal_mask(**arguments)
        with cache.report_true_lengths():
            return create_causal_mask(**arguments)

    def _build_padding_mask(
        self, current: Pass, group: int, layer_idx: int, states: Tensor, cache: Any
    ) -> Any:
        """For linear attention and convolutions: which of the new tokens are real.

        Slots that pad shorter rows precede all tokens, where they change nothing; but between
        cached tokens and new ones a recurrent state would decay in them.
        """
        from transformers.masking_utils import create_recurrent_attention_mask

        kept = current.find_kept(layer_idx)
        if kept is not None and current.tokens.before and not bool(kept.valid.all()):
            raise InputError(
                "The rows of this batch keep different numbers of tokens and continue a cache, but "
                f"decoder layer {layer_idx} ({self._kinds[layer_idx]}) is recurrent and cannot "
                "skip the padding of shorter rows. Continue with one row at a time, or pass the "
                "whole chat without a cache."
            )
        columns = current.groups[group].columns
        return create_recurrent_attention_mask(self._config, states, columns, cache)

    def _reindex(self, states: Tensor, columns: Tensor) -> tuple[Tensor, Any]:
        """Positions ``(b, m)`` without gaps for the new tokens, and their rotary embedding.

        `columns` ``(b, p + m)`` bool marks the real tokens among earlier and new ones.
        """
        numbers = (columns.cumsum(-1) - 1).clamp(min=0)[:, -states.shape[1] :]
        numbers = numbers.to(states.device)
        return numbers, self._decoder.rotary_emb(states, position_ids=numbers)

    def _shorten_token_arguments(self, kwargs: dict[str, Any], kept: Kept | None) -> dict[str, Any]:
        """The entries of kept tokens; an argument may be None once only text follows."""
        given = {name: kwargs.get(name) for name in self._token_arguments}
        return {
            name: value if kept is None else kept.take(value)
            for name, value in given.items()
            if value is not None
        }

    def _shorten_position_ids(
        self, position_ids: Tensor | None, kept: Kept | None
    ) -> Tensor | None:
        """Positions for attentions that scale by them; flash attention would misread the gaps."""
        attention = getattr(self._config, "_attn_implementation", None)
        if position_ids is None or position_ids.dim() != 2 or "flash" in str(attention):
            return None
        return position_ids if kept is None else kept.take(position_ids)


def _cut_rotation(rotation: Any, kept: Kept) -> Any:
    """The rotations of kept tokens: cosines and sines, one complex table, or none."""
    if rotation is None:
        return None
    return kept.take(rotation) if isinstance(rotation, Tensor) else tuple(map(kept.take, rotation))


def _get_remembered(cache: Any, group: int) -> Tensor | None:
    """See `PrunedCache.get_columns`; None for a cache that was never pruned."""
    return cache.get_columns(group) if isinstance(cache, PrunedCache) else None


# ---- which methods a decoder supports ---------------------------------------------------------


def resolve_stages(method: Method, layers: Sequence[nn.Module]) -> tuple[int, ...]:
    """The pruning layers of a method, checked."""
    stages, depth = tuple(method.pruning_layers(len(layers))), len(layers)
    if list(stages) != sorted(set(stages)) or any(not 0 <= each < depth for each in stages):
        raise InputError(
            f"{type(method).__name__} prunes before layers {stages}, which must ascend and lie "
            f"between 0 and {depth - 1} in this model."
        )
    sharing = [number for number, each in enumerate(layers) if _has(each, "is_kv_shared_layer")]
    if sharing:
        _check_shared_keys(method, layers, stages, sharing)
    return stages


def _check_shared_keys(
    method: Method, layers: Sequence[nn.Module], stages: Sequence[int], sharing: list[int]
) -> None:
    """Raise if tokens are dropped between a layer and those that share its keys."""
    shared = [number for number, each in enumerate(layers) if _has(each, "store_full_length_kv")]
    late = [stage for stage in stages if stage > min(shared)]
    if late:
        raise InputError(
            f"{type(method).__name__} prunes before layer {late[0]}, but layers {sharing[0]} to "
            f"{sharing[-1]} of this model attend to keys of layer {min(shared)}, where the tokens "
            f"would still be. Prune before layer {min(shared)} or earlier."
        )


def _has(layer: nn.Module, name: str) -> bool:
    return bool(getattr(getattr(layer, "self_attn", None), name, False))


def get_argument(kwargs: Mapping[str, Any], name: str, layer: nn.Module) -> Any:
    """A keyword argument that every decoder layer is called with."""
    if name not in kwargs:
        raise InternalsError(
            f"{type(layer).__name__} was called without {name}, which pruning relies on. Install a "
            "tested version of transformers (see docs/guide/limits.md)."
        )
    return kwargs[name]


def check_layers(layers: Any, text_config: Any) -> None:
    """Raise `InternalsError` if the decoder layers of a model do not name what pruning reads.

    A layer that takes its cache under another name would seem to have none, and shared keys that
    no layer reports would be read after tokens were dropped.
    """
    for layer in {type(layer) for layer in layers}:
        taken = inspect.signature(layer.forward).parameters
        kinds = {each.kind for each in taken.values()}
        if "past_key_values" not in taken and inspect.Parameter.VAR_KEYWORD not in kinds:
            raise InternalsError(
                f"{layer.__name__} takes no past_key_values, so its cache cannot be pruned. "
                "Install a tested version of transformers (see docs/guide/limits.md)."
            )
    if getattr(text_config, "num_kv_shared_layers", 0) and not any(
        _has(layer, "is_kv_shared_layer") for layer in layers
    ):
        raise InternalsError(
            f"num_kv_shared_layers is {text_config.num_kv_shared_layers}, but no decoder layer has "
            "is_kv_shared_layer set. Install a tested version of transformers (see "
            "docs/guide/limits.md)."
        )


def keep_positions(method: Method, family: Family, own_masks: bool) -> Method:
    """The method, with ``positions="original"`` and a warning where a model cannot reindex.

    `own_masks` says that masks are cut from those of the whole sequence.
    """
    if method.positions == "original" or not (family.several_axes or own_masks):
        return method
    name = type(method).__name__
    reason = "its attention windows count original positions"
    if family.several_axes:
        reason = "it has multi-axis position IDs (M-RoPE)"
    changed = _with_original_positions(method)
    if changed is None:
        raise InputError(
            f"{name} uses positions='reindex', which {family.name} does not support because "
            f"{reason}. Give {name} a field positions: str = 'original'."
        )
    warnings.warn(
        f"{name} uses positions='reindex', which {family.name} does not support because {reason}. "
        "Using positions='original'. To silence this note, pass positions='original', or on the "
        f"command line {name_method(changed) or 'positions=original'}.",
        TokenCoverWarning,
        stacklevel=3,
    )
    return changed


def _with_original_positions(method: Method) -> Method | None:
    """A copy that keeps positions; None for a method whose positions are not a setting."""
    settings = {each.name for each in dataclasses.fields(method) if each.init}  # type: ignore[arg-type]
    if "positions" in settings:
        return dataclasses.replace(method, positions="original")  # type: ignore[type-var]
    inner = getattr(method, "inner", None)
    changed = _with_original_positions(inner) if isinstance(inner, Method) else None
    return None if changed is None else dataclasses.replace(method, inner=changed)  # type: ignore[type-var]
