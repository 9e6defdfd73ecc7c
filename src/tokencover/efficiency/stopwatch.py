"""Watches a model and a method at work, and notes when things happen."""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from transformers.generation.streamers import BaseStreamer

from tokencover.efficiency.memory import cache_bytes, cache_lengths
from tokencover.methods import Method


def now() -> float:
    """The time when all devices have done what they were asked to."""
    for device in range(torch.cuda.device_count()):
        torch.cuda.synchronize(device)
    return time.perf_counter()


class SelectionWatch:
    """A method whose choices are timed, all of them: it may act at several places.

    Attributes
    ----------
    method : Method
        Behaves as the given one.
    seconds : float
        Spent choosing so far.
    """

    def __init__(self, method: Method) -> None:
        self.method = copy.copy(method)
        self.seconds = 0.0
        for name in ("choose", "choose_in_tower"):
            timed = functools.partial(self._timed, getattr(method, name))
            object.__setattr__(self.method, name, timed)  # dataclasses of methods are frozen

    def _timed(self, choose: Callable[[Any], Any], view: Any) -> Any:
        begin = now()
        try:
            return choose(view)
        finally:
            self.seconds += now() - begin


class TokenTimes(BaseStreamer):
    """Notes when `generate` has each new token; the prompt comes first and is not noted."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._prompt_came = False

    def put(self, value: Any) -> None:
        """Called with the prompt, then with each new token."""
        if self._prompt_came:
            self.times.append(now())
        self._prompt_came = True

    def end(self) -> None:
        """Called when generation has ended."""


class PrefillWatch:
    """Notes what a decoder's first pass takes, and what it leaves in the cache.

    Attributes
    ----------
    seconds : float
        Time of the first pass through the decoder, choosing between its blocks included.
    lengths : list of int
        Cached tokens of each layer behind it.
    cached : int
        Bytes of keys and values.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.lengths: list[int] = []
        self.cached = 0
        self._begin: float | None = None

    @contextmanager
    def on(self, decoder: nn.Module) -> Iterator[None]:
        """Watch this decoder."""
        with ExitStack() as undo:
            before = decoder.register_forward_pre_hook(self._before)
            undo.callback(before.remove)
            after = decoder.register_forward_hook(self._after, with_kwargs=True)
            undo.callback(after.remove)
            yield

    def _before(self, module: nn.Module, args: Any) -> None:
        if self._begin is None:
            self._begin = now()

    def _after(self, module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        if not self.lengths and self._begin is not None:
            self.seconds = now() - self._begin
            cache = kwargs["past_key_values"]
            self.lengths, self.cached = cache_lengths(cache), cache_bytes(cache)
