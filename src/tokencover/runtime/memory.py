"""What must be remembered beside a key-value cache whose layers have different lengths."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor


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
            cache.get_seq_length = self._reported_length

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Let the cache tell its true lengths, to size an attention mask."""
        self._measuring = True
        try:
            yield
        finally:
            self._measuring = False

    def _reported_length(self, layer_idx: int = 0) -> Any:
        length = self._measured_length(layer_idx)
        if self._measuring or layer_idx != 0 or int(length) == 0:
            return length
        return length + self._missing
