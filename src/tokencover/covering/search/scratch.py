"""Where a selection on the CPU runs: threads that compute on one core each, and their buffers.

A parallel region of torch waits for its slowest thread. On a machine with other work that is a time
slice of the scheduler, far longer than a product of a few dozen tokens takes on one thread. So a
selection runs on a worker thread whose torch uses one thread, and large products are cut into
pieces that several workers take in turn.

torch's number of threads belongs to a thread: a worker sets its own once, and the numbers of all
other threads stay as they are.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial, wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from tokencover.covering import tuning

P = ParamSpec("P")
R = TypeVar("R")

_MAX_WORKERS = 256
_local = threading.local()


class ScratchBuffers:
    """Buffers that grow to the largest size requested and are used again.

    Fresh pages cost more than the arithmetic on a few dozen tokens: the system clears each of them.
    """

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, torch.dtype], Tensor] = {}

    @classmethod
    def of_this_thread(cls, purpose: str) -> ScratchBuffers:
        """Get the thread's buffers for one purpose; only one function may use them at a time."""
        if not hasattr(_local, "buffers"):
            _local.buffers = {}
        buffers: dict[str, ScratchBuffers] = _local.buffers
        return buffers.setdefault(purpose, cls())

    def empty(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An uninitialized CPU tensor, valid until the next request of that name and type."""
        size = math.prod(shape)
        buffer = self._buffers.get((name, dtype))
        if buffer is None or len(buffer) < size:
            with torch.inference_mode(False):  # or it could not be written to outside that mode
                buffer = torch.empty(size, dtype=dtype, device="cpu")
            if buffer.nbytes <= tuning.KEPT_BUFFER:
                self._buffers[name, dtype] = buffer
        return buffer[:size].view(shape)


class _Workers:
    """A pool of threads in which torch uses one thread."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin with no threads."""
        self._starting = threading.Lock()
        self.pool = ThreadPoolExecutor(_MAX_WORKERS, "tokencover", self._set_own_threads)

    def _set_own_threads(self) -> None:
        """Make torch use one thread here, and nowhere else.

        `set_num_threads` also sets the number with which new threads begin. Another thread, which
        ends at once, sets that back.
        """
        with self._starting:
            of_new_threads = torch.get_num_threads()  # this thread is new
            torch.set_num_threads(1)
            restoring = threading.Thread(target=torch.set_num_threads, args=(of_new_threads,))
            restoring.start()
            restoring.join()


_workers = _Workers()
if hasattr(os, "register_at_fork"):  # a child process has none of the threads
    os.register_at_fork(after_in_child=_workers.renew)


def on_one_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function on a worker, without gradients.

    It runs on the calling thread if torch has one thread there, or if a dispatch mode is active
    there (`FlopCounterMode`, for example), which would not apply on a worker.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        threads = torch.get_num_threads()
        if threads == 1 or _get_current_dispatch_mode() is not None:
            with torch.no_grad():
                return function(*args, **kwargs)
        work = partial(function, *args, **kwargs)
        inference = torch.is_inference_mode_enabled()
        return _workers.pool.submit(_run_on_worker, work, threads, inference).result()

    return run


def _run_on_worker(work: Callable[[], R], threads: int, inference: bool) -> R:
    _local.threads = threads
    try:
        with torch.inference_mode(inference), torch.no_grad():
            return work()
    finally:
        _local.threads = 1


def count_threads(products: int) -> int:
    """How many threads so many multiply-adds are worth, on a worker; else 1."""
    threads: int = getattr(_local, "threads", 1)
    return 1 if products < tuning.THREADED_PRODUCT else min(threads, tuning.MAX_THREADS)


def run_in_pieces(
    work: Callable[[slice], None], length: int, threads: int, smallest: int = 128
) -> None:
    """Do some work for all of `length` rows, on several threads from `count_threads`.

    Each call of `work` gets a slice of at least `smallest` rows, except the last one.
    """
    if threads == 1:
        work(slice(0, length))
        return
    size = max(smallest, -(-length // (tuning.PIECES_PER_THREAD * threads)))
    pieces = deque(slice(begin, begin + size) for begin in range(0, length, size))

    def take_pieces() -> None:
        while True:
            try:
                piece = pieces.popleft()
            except IndexError:
                return
            work(piece)

    inference = torch.is_inference_mode_enabled()
    helpers = [
        _workers.pool.submit(_run_on_worker, take_pieces, 1, inference) for _ in range(threads - 1)
    ]
    try:
        take_pieces()
    finally:
        pieces.clear()
        running = [helper for helper in helpers if not helper.cancel()]
        wait(running)
    for helper in running:
        helper.result()
