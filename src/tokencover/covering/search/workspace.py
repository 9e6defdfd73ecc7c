"""Memory that is used again.

Fresh pages cost more than the arithmetic on a few dozen tokens: the system clears every one of
them. So each thread keeps a few buffers between calls, as matrix libraries do; large ones, for
which clearing pages is a small part of the work, are given back at once.
"""

from __future__ import annotations

import math
import threading

import torch
from torch import Tensor

_LARGEST_KEPT = 2**24
"""Bytes; a larger buffer lives no longer than its workspace's user needs it."""

_threads = threading.local()


class Workspace:
    """Buffers that grow to the largest size asked for."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, torch.dtype], Tensor] = {}

    @classmethod
    def of_this_thread(cls, name: str) -> Workspace:
        """The thread's workspace for one purpose; no two users of it may be at work at a time."""
        spaces: dict[str, Workspace] = vars(_threads)
        return spaces.setdefault(name, cls())

    def empty(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An uninitialised tensor on the CPU; the next one of that name and type overwrites it."""
        size = math.prod(shape)
        buffer = self._buffers.get((name, dtype))
        if buffer is None or len(buffer) < size:
            with torch.inference_mode(False):  # or it could not be written to outside that mode
                buffer = torch.empty(size, dtype=dtype, device="cpu")
            if buffer.nbytes <= _LARGEST_KEPT:
                self._buffers[name, dtype] = buffer
        return buffer[:size].view(shape)
