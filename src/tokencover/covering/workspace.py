"""Memory that is used again and again.

Fresh pages cost more than the arithmetic on a few dozen tokens: the system clears every one of
them. Loops therefore keep a workspace. What was computed in one lives until its next use.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


class Workspace:
    """Buffers that grow to the largest size asked for."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, torch.dtype], Tensor] = {}

    def empty(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An uninitialised tensor on the CPU; the next one of that name and type overwrites it."""
        size = math.prod(shape)
        buffer = self._buffers.get((name, dtype))
        if buffer is None or len(buffer) < size:
            buffer = torch.empty(size, dtype=dtype)
            self._buffers[name, dtype] = buffer
        return buffer[:size].view(shape)
