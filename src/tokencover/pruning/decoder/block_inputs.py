"""What a decoder block gets beside its states after pruning: a mask, positions, a cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tokencover.errors import InputError
from tokencover.families import is_recurrent, list_layer_types
from tokencover.pruning.decoder.own_masks import (
    Columns,
    check_plain,
    check_readable,
    cut_to_layer,
    find_origins,
    make_own_mask,
)
from tokencover.pruning.decoder.pruned_cache import (
    PrunedCache,
    Pruning,
    mark_pruned,
)
from tokencover.pruning.decoder.renumbering import Renumbering
from tokencover.pruning.forward_pass import ForwardPass, Kept
from tokencover.pruning.internals import get_argument


class BlockInputs:
    """Masks and positions for sequences that were shortened.

    Blocks between two places where tokens are dropped form a group, named after its first block;
    they share one set of positions, and one mask for each kind of block.

    Parameters
    ----------
    decoder : nn.Module
        The text model.
    pruning : Pruning
        The first block of each group, and what positions kept tokens have.
    renumbering : Renumbering or None
        Numbers the tokens that are left anew, if the method wants that.
    token_arguments : sequence of str
        Arguments of blocks with one entry per token, see `Family`.
    """

    def __init__(
        self,
        decoder: Any,
        pruning: Pruning,
        renumbering: Renumbering | None,
        token_arguments: Sequence[str] = (),
    ) -> None:
        self._token_arguments = token_arguments
        self._decoder, self._config = decoder, decoder.config
        self._pruning, self._renumbering = pruning, renumbering
        self._kinds = list_layer_types(decoder)

    def find_group(self, number: int) -> int | None:
        """The group of a block; None before the first."""
        return max((first for first in self._pruning.groups if first <= number), default=None)

    def announce(self, number: int, cache: Any) -> None:
        """Tell a pruned cache that a block is going to add to it."""
        if isinstance(cache, PrunedCache):
            cache.announce(number, self._pruning)

    def end_pass(self, cache: Any) -> None:
        """Tell a pruned cache that no block is going to add to it now, after an error too."""
        if isinstance(cache, PrunedCache):
            cache.end_pass()

    def shorten(
        self,
        current: ForwardPass,
        group: int | None,
        number: int,
        states: Tensor,
        kwargs: dict[str, Any],
    ) -> dict[str, Any] | None:
        """A block's keyword arguments for the states that are left; None if they need no change."""
        cache = kwargs.get("past_key_values")
        kept = current.find_left(number)
        if group is None or (kept is None and _find_remembered(cache, group) is None):
            return self._cut_undropped(current, group, number, states, kwargs)
        if group not in current.columns:
            current.columns[group] = self._find_columns(current, group, kept, cache)
            if self._pruning.own_masks:
                check_readable(self._config, cache)
                current.origins[group] = find_origins(current, group, kept, cache)
            self._remember(current, group, number, kept, cache)
        if kept is not None and isinstance(cache, PrunedCache):
            cache.note_lacking(number, current.length - kept.index.shape[1])
        changed = {
            **kwargs,
            "position_ids": self._shorten_position_ids(kwargs.get("position_ids"), kept),
        }
        changed["attention_mask"] = self._find_mask(current, group, number, states, kwargs)
        if self._renumbering is not None:
            changed.update(self._renumber(self._renumbering, current, group, states))
        elif kept is not None:
            changed["position_embeddings"] = _cut_rotation(kwargs["position_embeddings"], kept)
        return {**changed, **self._shorten_token_arguments(kwargs, kept)}

    def cut_shared(
        self,
        get_pass: Callable[[], ForwardPass | None],
        original: Callable[..., tuple[Any, ...]],
        states: Tensor,
        others: Tensor | None,
        rotations: dict[str, Any],
        masks: dict[str, Any],
        last: Any,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Inputs of the blocks that share earlier keys, for all tokens left or the last of them.

        Since transformers 5.23, Gemma 4 runs them on the `last` tokens only. It cuts what we give
        it here, and its blocks need no further change.
        """
        current = get_pass()
        if current is None:
            return original(states, others, rotations, masks, last, **kwargs)
        current.cut_from = current.block + 1
        group = self.find_group(current.cut_from)
        masks = {kind: current.masks.get((group, kind), mask) for kind, mask in masks.items()}
        kept = current.find_left(current.cut_from)
        if kept is not None:
            others = None if others is None else kept.take(others)
            rotations = {kind: _cut_rotation(each, kept) for kind, each in rotations.items()}
            if isinstance(last, int) and not kept.ends_in(last, current.length):
                last = 0  # all tokens
        return original(states, others, rotations, masks, last, **kwargs)

    def shorten_others(self, others: tuple[Any, ...], kept: Kept | None) -> tuple[Any, ...]:
        """What a block gets for each token beside its states, without names (Gemma 4)."""
        if kept is None:
            return others
        return tuple(kept.take(each) if isinstance(each, Tensor) else each for each in others)

    def find_undropped_positions(
        self,
        current: ForwardPass,
        number: int,
        states: Tensor,
        left: Kept | None,
        kwargs: dict[str, Any],
    ) -> dict[str, Any]:
        """Positions for the first block of a group if nothing were dropped before it.

        With them other arguments that have one entry per token.
        """
        cache = kwargs.get("past_key_values")
        shortened = left is not None or _find_remembered(cache, number) is not None
        position_ids, rotation = kwargs.get("position_ids"), kwargs["position_embeddings"]
        more = self._shorten_token_arguments(kwargs, left)
        if self._renumbering is not None and shortened:
            columns = self._find_columns(current, number, left, cache)
            position_ids, rotation = self._renumbering.number(states, columns)
            left = None
        elif left is not None:
            rotation = _cut_rotation(rotation, left)
        position_ids = self._shorten_position_ids(position_ids, left)
        return {"position_ids": position_ids, "position_embeddings": rotation, **more}

    def plan_undropped_mask(
        self, current: ForwardPass, number: int, left: Kept | None, kwargs: dict[str, Any]
    ) -> Callable[[], Tensor | None] | None:
        """Give what the first block of a group sees if nothing is dropped before it, when called.

        None for models whose blocks see all tokens before them.
        """
        if not self._pruning.own_masks:
            return None

        def make() -> Tensor | None:
            cache = kwargs.get("past_key_values")
            seen = self._find_columns(current, number, left, cache)
            columns = Columns(find_origins(current, number, left, cache), seen)
            return make_own_mask(self._decoder, current, number, left, columns, kwargs)

        return make

    def find_past_columns(
        self, current: ForwardPass | None, number: int, cache: Any
    ) -> Tensor | None:
        """Which cached columns of a block are real tokens, None if all are."""
        group = self.find_group(number)
        remembered = None if group is None else _find_remembered(cache, group)
        if remembered is not None:
            return remembered
        return None if current is None else current.past

    def _find_columns(
        self, current: ForwardPass, group: int, left: Kept | None, cache: Any
    ) -> Tensor:
        """What the blocks of a group see: see `ForwardPass.columns`."""
        columns = current.real if left is None else left.valid
        if cache is None:
            return columns
        past = _find_remembered(cache, group)
        past = current.past if past is None else past
        if past is None:  # the model was given no mask, so whatever is cached is real
            past = columns.new_ones(len(columns), current.before)
        return torch.cat([past.to(columns.device), columns], dim=1)

    def _remember(
        self, current: ForwardPass, group: int, number: int, kept: Kept | None, cache: Any
    ) -> None:
        """Let the cache know what its layers of a group are going to hold."""
        if cache is None:
            return
        pruned = mark_pruned(cache, self._pruning)
        pruned.announce(number, self._pruning)
        pruned.remember(group, current.columns[group], current.origins.get(group))
        if kept is not None:
            pruned.note_dropped(current.before + kept.find_end_of_dropped(current.real))

    def _cut_undropped(
        self,
        current: ForwardPass,
        group: int | None,
        number: int,
        states: Tensor,
        kwargs: dict[str, Any],
    ) -> dict[str, Any] | None:
        """A block's keyword arguments where nothing was dropped; None if they need no change."""
        cache = kwargs.get("past_key_values")
        if not self._pruning.own_masks or not isinstance(cache, PrunedCache):
            return None
        key = (group, self._kinds[number])
        if key not in current.masks:
            current.masks[key] = cut_to_layer(self._decoder, number, states, kwargs)
        mask = current.masks[key]
        return {**kwargs, "attention_mask": None if mask is None else mask.to(states.device)}

    def _find_mask(
        self, current: ForwardPass, group: int, number: int, states: Tensor, kwargs: dict[str, Any]
    ) -> Any:
        """The mask of the blocks of a group that are of one kind, made once per pass."""
        key = (group, self._kinds[number])
        if key not in current.masks:
            cache = kwargs.get("past_key_values")
            if is_recurrent(key[1]):
                mask = self._make_padding_mask(current, group, number, states, cache)
            elif self._pruning.own_masks:
                if get_argument(kwargs, "attention_mask", self._decoder.layers[number]) is None:
                    check_plain(self._decoder, current, number)
                columns = Columns(current.origins[group], current.columns[group])
                left = current.find_left(number)
                mask = make_own_mask(self._decoder, current, number, left, columns, kwargs)
            else:
                mask = self._make_mask(current, group, number, states, cache)
            current.masks[key] = mask
        mask = current.masks[key]
        return mask.to(states.device) if isinstance(mask, Tensor) else mask

    def _make_mask(
        self, current: ForwardPass, group: int, number: int, states: Tensor, cache: Any
    ) -> Any:
        """For attention: what each token sees."""
        from transformers.masking_utils import create_causal_mask

        arguments = {"config": self._config, "inputs_embeds": states, "layer_idx": number}
        arguments |= {"attention_mask": current.columns[group], "past_key_values": cache}
        if not isinstance(cache, PrunedCache):
            return create_causal_mask(**arguments)
        with cache.tell_true_lengths():
            return create_causal_mask(**arguments)

    def _make_padding_mask(
        self, current: ForwardPass, group: int, number: int, states: Tensor, cache: Any
    ) -> Any:
        """For linear attention and convolutions: which of the new tokens are real.

        Slots that fill up shorter rows stand before all tokens, where they change nothing, as they
        do in padding; but between cached tokens and new ones a state would fade in them.
        """
        from transformers.masking_utils import create_recurrent_attention_mask

        kept = current.find_left(number)
        if kept is not None and current.before and not bool(kept.valid.all()):
            raise InputError(
                "the rows of this batch keep different numbers of tokens, and go on from a cache: "
                f"block {number} ({self._kinds[number]}) takes in one token after the other, and "
                "cannot leave out the slots that would fill up shorter rows. Go on with one row at "
                "a time, or give the whole chat without a cache."
            )
        columns = current.columns[group]
        return create_recurrent_attention_mask(self._config, states, columns, cache)

    def _renumber(
        self, renumbering: Renumbering, current: ForwardPass, group: int, states: Tensor
    ) -> dict[str, Any]:
        """Positions without gaps, computed once per pass and group."""
        if group not in current.rotations:
            current.rotations[group] = renumbering.number(states, current.columns[group])
        numbers, rotation = current.rotations[group]
        position_ids = self._shorten_position_ids(numbers, None)
        return {"position_ids": position_ids, "position_embeddings": rotation}

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
    """The rotations of the tokens that are left: cosines and sines, one complex table, or none."""
    if rotation is None:
        return None
    return kept.take(rotation) if isinstance(rotation, Tensor) else tuple(map(kept.take, rotation))


def _find_remembered(cache: Any, group: int) -> Tensor | None:
    """See `PrunedCache.find_columns`; None for a cache that was never pruned."""
    return cache.find_columns(group) if isinstance(cache, PrunedCache) else None
