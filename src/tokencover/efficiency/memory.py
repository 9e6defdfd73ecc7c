"""Memory: of the key-value cache, and the peak of a pass."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

PROCESS: Final = Path("/proc/self")


def cache_lengths(cache: Any) -> list[int]:
    """Tokens in each layer of a key-value cache."""
    return [int(layer.keys.shape[-2]) for layer in cache.layers]


def cache_bytes(cache: Any) -> int:
    """Bytes of all keys and values."""
    tensors = [each for layer in cache.layers for each in (layer.keys, layer.values)]
    return sum(each.numel() * each.element_size() for each in tensors)


def model_bytes(model: nn.Module) -> int:
    """Bytes of the weights; shared ones once."""
    return sum(each.numel() * each.element_size() for each in model.parameters())


def added_at_peak(run: Callable[[], object]) -> int | None:
    """Bytes by which a call raises the memory in use, at its peak.

    With CUDA these are tensors, on all devices together. Without, it is the resident memory of the
    process; what earlier calls freed is given back to the system first, so that it is not missed.

    Returns
    -------
    int or None
        None where the system does not tell (it does on Linux).
    """
    gc.collect()
    if torch.cuda.is_available():
        return _added_on_cuda(run)
    if not (PROCESS / "clear_refs").exists():
        run()
        return None
    _give_back_freed_memory()
    (PROCESS / "clear_refs").write_text("5")  # the peak starts again from here
    before = _bytes_of("VmRSS")
    run()
    return max(_bytes_of("VmHWM") - before, 0)


def _added_on_cuda(run: Callable[[], object]) -> int:
    devices = range(torch.cuda.device_count())
    before = [torch.cuda.memory_allocated(device) for device in devices]
    for device in devices:
        torch.cuda.reset_peak_memory_stats(device)
    run()
    peaks = [torch.cuda.max_memory_allocated(device) for device in devices]
    return sum(peaks) - sum(before)


def _give_back_freed_memory() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it
    if trim is not None:
        trim(0)


def _bytes_of(name: str) -> int:
    """A memory figure of this process, from the kernel."""
    lines = (PROCESS / "status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))
