"""What a computation adds to the peak of this process, from the kernel (Linux only)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path


def measure_added_peak(run: Callable[[], object]) -> float:
    """Megabytes above what the process holds before, while it runs once."""
    ctypes.CDLL(None).malloc_trim(0)  # what the allocator kept of earlier work is given back
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = _read_kilobytes("VmRSS")
    run()
    return (_read_kilobytes("VmHWM") - before) / 1024


def _read_kilobytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))
