"""What a decoder block gets beside its states: an attention mask and positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from tokencover.runtime.forward_pass import ForwardPass
from tokencover.runtime.memory import CacheMemory
from tokencover.runtime.renumbering import Renumbering
from tokencover.runtime.sequence import Kept


class BlockInputs:
    """Masks and positions for sequences that were shortened.

    Blocks between two places where tokens are dropped form a group, named after its first block;
    they share one mask and one set of positions.

    Parameters
    ----------
    decoder : nn.Module
        The text model.
    groups : sequence of int
        The first block of each group, ascending.
    renumbering : Renumbering or None
        Numbers the tokens that are left anew, if the method wants that.
    """

    def __init__(
        self, decoder: Any, groups: Sequence[int], renumbering: Renumbering | None
    ) -> None:
        self._config, self._groups, self._renumbering = decoder.config, groups, renumbering
        self._memories: Any = WeakIdKeyDictionary()

    def group_of(self, number: int) -> int | None:
        """The group of a block; None before the first."""
        return max((first for first in self._groups if first <= number), default=None)

    def as_shortened(
        self,
        current: ForwardPass,
        number: int,
        states: Tensor,
        kwargs: dict[str, Any],
    ) -> dict[str, Any] | None:
        """A block's keyword arguments for the states that are left; None if they need no change."""
        group, cache = self.group_of(number), kwargs.get("past_key_values")
        assert group is not None
        kept, memory = current.left_at(number), self._memory_of(cache)
        if kept is None and (memory is None or group not in memory):
            return None
        changed = {**kwargs, "position_ids": self._position_ids(kwargs.get("position_ids"), kept)}
        changed["attention_mask"] = self._mask(current, group, number, states, cache)
        if self._renumbering is not None:
            changed.update(self._renumbered(current, group, states))
        elif kept is not None:
            changed["position_embeddings"] = tuple(map(kept.take, kwargs["position_embeddings"]))
        return changed

    def undropped_positions(
        self,
        current: ForwardPass,
        number: int,
        states: Tensor,
        left: Kept | None,
        kwargs: dict[str, Any],
    ) -> dict[str, Any]:
        """Positions for the first block of a group if nothing were dropped before it."""
        cache = kwargs.get("past_key_values")
        memory = self._memory_of(cache)
        shortened = left is not None or (memory is not None and number in memory)
        position_ids, rotation = kwargs.get("position_ids"), kwargs["position_embeddings"]
        if self._renumbering is not None and shortened:
            columns = self._columns(current, number, left, cache)
            position_ids, rotation = self._renumbering.rotation(states, columns)
            left = None
        elif left is not None:
            rotation = tuple(map(left.take, rotation))
        position_ids = self._position_ids(position_ids, left)
        return {"position_ids": position_ids, "position_embeddings": rotation}

    def past_columns(self, current: ForwardPass | None, number: int, cache: Any) -> Tensor | None:
        """Which cached columns of a block are real tokens, None if all are."""
        group, memory = self.group_of(number), self._memory_of(cache)
        if memory is not None and group is not None and group in memory:
            return memory.columns(group)
        return None if current is None else current.past

    def _memory_of(self, cache: Any) -> CacheMemory | None:
        if cache is None:
            return None
        if cache not in self._memories:
            self._memories[cache] = CacheMemory(cache)
        memory: CacheMemory = self._memories[cache]
        return memory

    def _columns(self, current: ForwardPass, group: int, left: Kept | None, cache: Any) -> Tensor:
        """What the blocks of a group see: see `ForwardPass.columns`."""
        columns = current.real if left is None else left.valid
        memory = self._memory_of(cache)
        if memory is None:
            return columns
        memory.forget_if_empty()
        past = memory.columns(group) if group in memory else current.past
        if past is None:  # the model was given no mask, so whatever is cached is real
            past = columns.new_ones(len(columns), memory.length(group))
        return torch.cat([past.to(columns.device), columns], dim=1)

    def _mask(
        self, current: ForwardPass, group: int, number: int, states: Tensor, cache: Any
    ) -> Any:
        """The attention mask of a group of blocks, made once per pass and group."""
        if group not in current.masks:
            current.masks[group] = self._new_mask(current, group, number, states, cache)
        mask = current.masks[group]
        return mask.to(states.device) if isinstance(mask, Tensor) else mask

    def _new_mask(
        self, current: ForwardPass, group: int, number: int, states: Tensor, cache: Any
    ) -> Any:
        from transformers.masking_utils import create_causal_mask

        kept, memory = current.left_at(number), self._memory_of(cache)
        columns = current.columns[group] = self._columns(current, group, kept, cache)
        arguments = {
            "config": self._config,
            "inputs_embeds": states,
            "attention_mask": columns,
            "past_key_values": cache,
            "layer_idx": number,
        }
        if memory is None:
            return create_causal_mask(**arguments)
        with memory.measuring():
            mask = create_causal_mask(**arguments)
        memory.remember(group, columns)
        if number == 0 and kept is not None:
            memory.pretend_full_length(cache, current.length - kept.index.shape[1])
        return mask

    def _renumbered(self, current: ForwardPass, group: int, states: Tensor) -> dict[str, Any]:
        """Positions without gaps, computed once per pass and group."""
        if group not in current.rotations:
            assert self._renumbering is not None
            current.rotations[group] = self._renumbering.rotation(states, current.columns[group])
        numbers, rotation = current.rotations[group]
        return {
            "position_ids": self._position_ids(numbers, None),
            "position_embeddings": rotation,
        }

    def _position_ids(self, position_ids: Tensor | None, kept: Kept | None) -> Tensor | None:
        """Positions for attentions that scale by them; flash attention would misread the gaps."""
        attention = getattr(self._config, "_attn_implementation", None)
        if position_ids is None or position_ids.dim() != 2 or "flash" in str(attention):
            return None
        return position_ids if kept is None else kept.take(position_ids)
