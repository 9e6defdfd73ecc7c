"""Ctrl-C: heard wherever a command is, and told by one word and exit code 130.

Not a command itself.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType, TracebackType
from typing import Any, Final, NoReturn

INTERRUPTED: Final = 130
"""Exit code of a command that was stopped by Ctrl-C, as shells have it."""


class StopKey:
    """Remembers that Ctrl-C was pressed, while it raises ``KeyboardInterrupt`` as always.

    Libraries that are interrupted while they import or load may raise an error of their own
    instead: transformers says that a module is missing. With this, such an error is not taken for
    one.

    Attributes
    ----------
    pressed : bool
        Whether it was.
    """

    def __init__(self) -> None:
        self.pressed = False
        self._before: Any = None

    def __enter__(self) -> StopKey:
        # In another thread than the main one, or where a shell ignores it, there is nothing to do.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            try:
                self._before = signal.signal(signal.SIGINT, self._stop)
            except ValueError:
                self._before = None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _stop(self, number: int, frame: FrameType | None) -> NoReturn:
        self.pressed = True
        raise KeyboardInterrupt


def tell_stopped() -> None:
    """Say so."""
    print("tokencover: stopped", file=sys.stderr)


def leave(code: int) -> NoReturn:
    """End the program.

    One that was stopped ends at once, without waiting for threads; and Python would end by the
    signal itself if the key was pressed while it ran code that a library made of text. So does one
    of several processes that share a model: threads of gloo may abort while Python cleans up.
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
