"""Small work on one thread, large products on all, piece by piece.

A parallel region waits for its slowest thread. Where another process has one of the cores, that is
a time slice of the scheduler, far longer than a product of a few dozen tokens takes on one thread,
and a sum over chunks is dozens of such regions. So all of a selection runs on one thread, and a
large product is cut into pieces that threads take in turn: the one without a core takes few, and
what is waited for is its last piece.

torch knows one number of threads for all that runs on the calling thread: it is set for the time of
a selection and set back. (A thread that uses torch for the first time in that very moment begins
with the number of the moment; `torch.set_num_threads(1)` at the start of a program leaves nothing
to set.)
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

_LARGE = 2**28
"""Multiply-adds that are worth threads: a few milliseconds."""
_PIECES = 8
"""How many each thread does if none is slower."""
_MOST_THREADS = 16
"""More would wait for each other: each piece is dozens of calls from Python."""

_usual = threading.local()


@contextmanager
def use_one_thread() -> Iterator[None]:
    """Compute on the calling thread alone, but for `do_in_pieces`."""
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


def count_threads(products: int) -> int:
    """How many threads that many multiply-adds are worth, inside `use_one_thread`; else 1."""
    threads = getattr(_usual, "threads", None)
    return 1 if threads is None or products < _LARGE else min(threads, _MOST_THREADS)


def do_in_pieces(
    work: Callable[[slice], None], length: int, threads: int, smallest: int = 128
) -> None:
    """Do the work for all places of something of that length, a slice at a time.

    Parameters
    ----------
    work : callable
        What to do for some places; several at a time, each in a thread of its own.
    length : int
        How many places there are.
    threads : int
        How many threads take part, from `count_threads`; with one, the work is done in one go.
    smallest : int
        How many places are worth a piece.
    """
    if threads == 1:
        work(slice(0, length))
        return
    size = max(smallest, -(-length // (_PIECES * threads)))
    pieces = deque(slice(begin, begin + size) for begin in range(0, length, size))

    inference = torch.is_inference_mode_enabled()

    def take_pieces() -> None:
        while True:
            try:
                piece = pieces.popleft()
            except IndexError:
                return
            work(piece)

    def help_along() -> None:
        torch.set_num_threads(1)
        with torch.no_grad(), torch.inference_mode(inference):  # each thread begins without
            take_pieces()

    with ThreadPoolExecutor(threads - 1) as pool:
        helpers = [pool.submit(help_along) for _ in range(threads - 1)]
        take_pieces()
    for each in helpers:
        each.result()
