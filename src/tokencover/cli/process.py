"""The process of a command: Ctrl-C, exit codes, CPU threads."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any, Final, NoReturn

INTERRUPTED: Final = 130
"""Exit code of a command that was stopped by Ctrl-C, as in shells."""


class StopKey:
    """Records in `pressed` that Ctrl-C was pressed, and raises ``KeyboardInterrupt`` as usual.

    Libraries that are interrupted while they import or load may raise another error instead:
    transformers reports a missing module. With this, such errors are not reported.
    """

    def __init__(self) -> None:
        self.pressed = False
        self._before: Any = None

    def __enter__(self) -> StopKey:
        # Not in another thread than the main one, nor where a shell ignores the signal.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            try:
                self._before = signal.signal(signal.SIGINT, self._stop)
            except ValueError:
                self._before = None
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _stop(self, number: int, frame: FrameType | None) -> NoReturn:
        self.pressed = True
        raise KeyboardInterrupt


def print_interrupted() -> None:
    """Print that the command was stopped."""
    print("tokencover: stopped", file=sys.stderr)


def leave(code: int) -> NoReturn:
    """End the program.

    A stopped program ends at once, without waiting for threads: Python would end by the signal
    itself if the key was pressed in code that a library compiled from text. So does one of several
    processes that share a model: threads of gloo may abort while Python cleans up.
    """
    if code == INTERRUPTED or _has_process_group():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _has_process_group() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(
        torch.distributed.is_available() and torch.distributed.is_initialized()
    )


def set_threads(threads: int | None) -> None:
    """Set the number of torch's threads, by default to the idle cores.

    A thread without an idle core delays all others at every small step: two threads on one idle
    core take several times as long as one. ``OMP_NUM_THREADS`` takes precedence over the
    default.
    """
    import torch

    if threads is None:
        if os.environ.get("OMP_NUM_THREADS"):
            return
        threads = min(torch.get_num_threads(), count_idle_cores(count_cores(), get_load()))
    torch.set_num_threads(threads)


def count_cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def get_load() -> float:
    """Return how many cores were busy in the last minute, 0 if it is unknown."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def count_idle_cores(cores: int, load: float) -> int:
    """Return the idle cores, at least one."""
    return max(1, cores - round(load))
