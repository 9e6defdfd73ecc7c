"""Small work on one thread, large products on all.

A parallel region waits for its slowest thread. Where another process has one of the cores, that is
a time slice of the scheduler, far longer than a product of a few dozen tokens takes on one thread.
So a search runs on one thread, and only products of some size use all of them.

torch knows one number of threads for all that runs on the calling thread: it is set for the time of
a search and set back. (A thread that uses torch for the first time in that very moment begins with
the number of the moment; `torch.set_num_threads(1)` at the start of a program leaves nothing to
set.)
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_LARGE = 2**28
"""Multiply-adds that are worth a parallel region: a few milliseconds."""

_usual = threading.local()


@contextmanager
def use_one_thread() -> Iterator[None]:
    """Compute on the calling thread alone, but for `use_threads_for`."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    _usual.threads = threads
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        _usual.threads = None


@contextmanager
def use_threads_for(products: int) -> Iterator[None]:
    """Inside `use_one_thread`: all threads again, if that many multiply-adds are worth it."""
    threads = getattr(_usual, "threads", None)
    if threads is None or products < _LARGE:
        yield
        return
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(1)
