"""What a decoder block gets beside its states after pruning: a mask, positions, a cache."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tokencover.runtime.decoder.pruned_cache import PrunedCache, Pruning, mark_pruned
from tokencover.runtime.decoder.renumbering import Renumbering
from tokencover.runtime.forward_pass import ForwardPass, Kept

KINDS_OF_TOKENS = "moe_mm_token_type_ids"
"""Which tokens go to the experts of pictures (ERNIE 4.5 VL); None once only text follows."""


class BlockInputs:
    """Masks and positions for sequences that were shortened.

    Blocks between two places where tokens are dropped form a group, named after its first block;
    they share one mask and one set of positions.

    Parameters
    ----------
    decoder : nn.Module
        The text model.
    pruning : Pruning
        The first block of each group, and what positions kept tokens have.
    renumbering : Renumbering or None
        Numbers the tokens that are left anew, if the method wants that.
    """

    def __init__(self, decoder: Any, pruning: Pruning, renumbering: Renumbering | None) -> None:
        self._config, self._pruning, self._renumbering = decoder.config, pruning, renumbering

    def find_group(self, number: int) -> int | None:
        """The group of a block; None before the first."""
        return max((first for first in self._pruning.groups if first <= number), default=None)

    def announce(self, number: int, cache: Any) -> None:
        """Tell a pruned cache that a block is going to add to it."""
        if isinstance(cache, PrunedCache):
            cache.announce(number, self._pruning)

    def shorten(
        self,
        current: ForwardPass,
        group: int,
        number: int,
        states: Tensor,
        kwargs: dict[str, Any],
    ) -> dict[str, Any] | None:
        """A block's keyword arguments for the states that are left; None if they need no change."""
        cache = kwargs.get("past_key_values")
        kept = current.find_left(number)
        if kept is None and _find_remembered(cache, group) is None:
            return None
        changed = {
            **kwargs,
            "position_ids": self._shorten_position_ids(kwargs.get("position_ids"), kept),
        }
        changed["attention_mask"] = self._find_mask(current, group, number, states, cache)
        if self._renumbering is not None:
            changed.update(self._renumber(self._renumbering, current, group, states))
        elif kept is not None:
            changed["position_embeddings"] = tuple(map(kept.take, kwargs["position_embeddings"]))
        return {**changed, **_shorten_kinds(kwargs, kept)}

    def find_undropped_positions(
        self,
        current: ForwardPass,
        number: int,
        states: Tensor,
        left: Kept | None,
        kwargs: dict[str, Any],
    ) -> dict[str, Any]:
        """Positions for the first block of a group if nothing were dropped before it.

        With them the kinds of tokens, where the blocks of the model want to know them.
        """
        cache = kwargs.get("past_key_values")
        shortened = left is not None or _find_remembered(cache, number) is not None
        position_ids, rotation = kwargs.get("position_ids"), kwargs["position_embeddings"]
        kinds = _shorten_kinds(kwargs, left)
        if self._renumbering is not None and shortened:
            columns = self._find_columns(current, number, left, cache)
            position_ids, rotation = self._renumbering.number(states, columns)
            left = None
        elif left is not None:
            rotation = tuple(map(left.take, rotation))
        position_ids = self._shorten_position_ids(position_ids, left)
        return {"position_ids": position_ids, "position_embeddings": rotation, **kinds}

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
            past = columns.new_ones(len(columns), int(cache.get_seq_length(group)))
        return torch.cat([past.to(columns.device), columns], dim=1)

    def _find_mask(
        self, current: ForwardPass, group: int, number: int, states: Tensor, cache: Any
    ) -> Any:
        """The attention mask of a group of blocks, made once per pass and group."""
        if group not in current.masks:
            current.masks[group] = self._make_mask(current, group, number, states, cache)
        mask = current.masks[group]
        return mask.to(states.device) if isinstance(mask, Tensor) else mask

    def _make_mask(
        self, current: ForwardPass, group: int, number: int, states: Tensor, cache: Any
    ) -> Any:
        from transformers.masking_utils import create_causal_mask

        kept = current.find_left(number)
        columns = current.columns[group] = self._find_columns(current, group, kept, cache)
        arguments = {"config": self._config, "inputs_embeds": states, "layer_idx": number}
        arguments |= {"attention_mask": columns, "past_key_values": cache}
        if cache is None:
            return create_causal_mask(**arguments)
        before = int(cache.get_seq_length()) - (current.length if number > 0 else 0)
        pruned = mark_pruned(cache, self._pruning)
        pruned.announce(number, self._pruning)
        with pruned.tell_true_lengths():
            mask = create_causal_mask(**arguments)
        pruned.remember(group, columns)
        if kept is not None:
            missing = current.length - kept.index.shape[1] if number == 0 else 0
            pruned.note_dropped(before + kept.find_end_of_dropped(current.real), missing)
        return mask

    def _renumber(
        self, renumbering: Renumbering, current: ForwardPass, group: int, states: Tensor
    ) -> dict[str, Any]:
        """Positions without gaps, computed once per pass and group."""
        if group not in current.rotations:
            current.rotations[group] = renumbering.number(states, current.columns[group])
        numbers, rotation = current.rotations[group]
        position_ids = self._shorten_position_ids(numbers, None)
        return {"position_ids": position_ids, "position_embeddings": rotation}

    def _shorten_position_ids(
        self, position_ids: Tensor | None, kept: Kept | None
    ) -> Tensor | None:
        """Positions for attentions that scale by them; flash attention would misread the gaps."""
        attention = getattr(self._config, "_attn_implementation", None)
        if position_ids is None or position_ids.dim() != 2 or "flash" in str(attention):
            return None
        return position_ids if kept is None else kept.take(position_ids)


def _find_remembered(cache: Any, group: int) -> Tensor | None:
    """See `PrunedCache.find_columns`; None for a cache that was never pruned."""
    return cache.find_columns(group) if isinstance(cache, PrunedCache) else None


def _shorten_kinds(kwargs: dict[str, Any], kept: Kept | None) -> dict[str, Any]:
    """The kinds of the tokens that are left, for models whose blocks are told them."""
    kinds = kwargs.get(KINDS_OF_TOKENS)
    if kinds is None:
        return {}
    return {KINDS_OF_TOKENS: kinds if kept is None else kept.take(kinds)}
