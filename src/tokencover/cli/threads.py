"""How many CPU threads a command works with.

Not a command itself: commands import it when they begin to work.
"""

from __future__ import annotations

import os


def set_threads(asked: int | None) -> None:
    """Work with so many threads, or with as many as the machine has cores free.

    A thread that waits for a core which another program has holds up all others, at every one of
    many small steps: two threads on one free core take several times as long as one.

    Parameters
    ----------
    asked : int, optional
        As the user says; None to look at the machine, unless ``OMP_NUM_THREADS`` says it.
    """
    import torch

    if asked is None:
        if os.environ.get("OMP_NUM_THREADS"):
            return
        asked = min(torch.get_num_threads(), count_free_cores(count_cores(), find_load()))
    torch.set_num_threads(asked)


def count_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def find_load() -> float:
    """How many cores other programs kept busy in the last minute; 0 if it is not known."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def count_free_cores(cores: int, load: float) -> int:
    """The cores that are left, at least one."""
    return max(1, cores - round(load))
