"""What a decoder block gets beside its states: an attention mask and positions.

After pruning, the layers of a key-value cache have different lengths; what must be remembered
beside it is here too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from tokencover.runtime.decoder.renumbering import Renumbering
from tokencover.runtime.forward_pass import ForwardPass, Kept


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

    def find_group(self, number: int) -> int | None:
        """The group of a block; None before the first."""
        return max((first for first in self._groups if first <= number), default=None)

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
        kept, memory = current.left_at(number), self._find_memory(cache)
        if kept is None and (memory is None or group not in memory):
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
        return changed

    def find_undropped_positions(
        self,
        current: ForwardPass,
        number: int,
        states: Tensor,
        left: Kept | None,
        kwargs: dict[str, Any],
    ) -> dict[str, Any]:
        """Positions for the first block of a group if nothing were dropped before it."""
        cache = kwargs.get("past_key_values")
        memory = self._find_memory(cache)
        shortened = left is not None or (memory is not None and number in memory)
        position_ids, rotation = kwargs.get("position_ids"), kwargs["position_embeddings"]
        if self._renumbering is not None and shortened:
            columns = self._find_columns(current, number, left, cache)
            position_ids, rotation = self._renumbering.number(states, columns)
            left = None
        elif left is not None:
            rotation = tuple(map(left.take, rotation))
        position_ids = self._shorten_position_ids(position_ids, left)
        return {"position_ids": position_ids, "position_embeddings": rotation}

    def find_past_columns(
        self, current: ForwardPass | None, number: int, cache: Any
    ) -> Tensor | None:
        """Which cached columns of a block are real tokens, None if all are."""
        group, memory = self.find_group(number), self._find_memory(cache)
        if memory is not None and group is not None and group in memory:
            return memory.columns(group)
        return None if current is None else current.past

    def _find_memory(self, cache: Any) -> CacheMemory | None:
        if cache is None:
            return None
        if cache not in self._memories:
            self._memories[cache] = CacheMemory(cache)
        memory: CacheMemory = self._memories[cache]
        return memory

    def _find_columns(
        self, current: ForwardPass, group: int, left: Kept | None, cache: Any
    ) -> Tensor:
        """What the blocks of a group see: see `ForwardPass.columns`."""
        columns = current.real if left is None else left.valid
        memory = self._find_memory(cache)
        if memory is None:
            return columns
        memory.forget_if_empty()
        past = memory.columns(group) if group in memory else current.past
        if past is None:  # the model was given no mask, so whatever is cached is real
            past = columns.new_ones(len(columns), memory.length(group))
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

        kept, memory = current.left_at(number), self._find_memory(cache)
        columns = current.columns[group] = self._find_columns(current, group, kept, cache)
        arguments = {
            "config": self._config,
            "inputs_embeds": states,
            "attention_mask": columns,
            "past_key_values": cache,
            "layer_idx": number,
        }
        if memory is None:
            return create_causal_mask(**arguments)
        with memory.tell_true_lengths():
            mask = create_causal_mask(**arguments)
        memory.remember(group, columns)
        if number == 0 and kept is not None:
            memory.pretend_full_length(cache, current.length - kept.index.shape[1])
        return mask

    def _renumber(
        self, renumbering: Renumbering, current: ForwardPass, group: int, states: Tensor
    ) -> dict[str, Any]:
        """Positions without gaps, computed once per pass and group."""
        if group not in current.rotations:
            current.rotations[group] = renumbering.number(states, current.columns[group])
        numbers, rotation = current.rotations[group]
        return {
            "position_ids": self._shorten_position_ids(numbers, None),
            "position_embeddings": rotation,
        }

    def _shorten_position_ids(
        self, position_ids: Tensor | None, kept: Kept | None
    ) -> Tensor | None:
        """Positions for attentions that scale by them; flash attention would misread the gaps."""
        attention = getattr(self._config, "_attn_implementation", None)
        if position_ids is None or position_ids.dim() != 2 or "flash" in str(attention):
            return None
        return position_ids if kept is None else kept.take(position_ids)


class CacheMemory:
    """Which cached columns are real tokens, for the layers that hold shortened sequences.

    Layers between two pruning blocks form a group, named after its first block, and share a mask.
    """

    def __init__(self, cache: Any) -> None:
        self._masks: dict[int, Tensor] = {}
        self._missing = 0
        self._measured_length = cache.get_seq_length
        self._measuring = False

    def __contains__(self, group: int) -> bool:
        return group in self._masks

    def columns(self, group: int) -> Tensor:
        """``(b, cached length)`` bool; newer columns may have been cropped away since."""
        return self._masks[group][:, : self.length(group)]

    def length(self, group: int) -> int:
        """Cached tokens in the layers of a group."""
        return int(self._measured_length(group))

    def remember(self, group: int, columns: Tensor) -> None:
        """Keep the columns for the passes to come."""
        self._masks[group] = columns

    def forget_if_empty(self) -> None:
        """A cache that was reset starts again."""
        if int(self._measured_length(0)) == 0:
            self._masks.clear()
            self._missing = 0

    def pretend_full_length(self, cache: Any, dropped: int) -> None:
        """Make the cache report the length of the whole text although layer 0 is shorter.

        transformers reads the length of layer 0 to number new tokens and to find where a chat goes
        on. That is only wrong if pruning happens before the very first block.
        """
        self._missing += dropped
        if "get_seq_length" not in vars(cache):
            cache.get_seq_length = self._report_length

    @contextmanager
    def tell_true_lengths(self) -> Iterator[None]:
        """Let the cache tell its true lengths, to size an attention mask."""
        self._measuring = True
        try:
            yield
        finally:
            self._measuring = False

    def _report_length(self, layer_idx: int = 0) -> Any:
        length = self._measured_length(layer_idx)
        if self._measuring or layer_idx != 0 or int(length) == 0:
            return length
        return length + self._missing
