"""Instruments that measure time, memory and FLOPs of a model and a method."""

from __future__ import annotations

import copy
import ctypes
import functools
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tokencover.budget import is_innermost_linear
from tokencover.loading import list_stored
from tokencover.methods import Method

PROCESS: Final = Path("/proc/self")


def read_clock() -> float:
    """Return the time after all devices have finished their work."""
    for device in range(torch.cuda.device_count()):
        torch.cuda.synchronize(device)
    return time.perf_counter()


class SelectionWatch:
    """A copy of a method that adds up the seconds of all its calls, in every layer it prunes at."""

    def __init__(self, method: Method) -> None:
        self.method = _wrap_choices(method, self._choose)
        self.seconds = 0.0

    def _choose(self, choose: Callable[[Any], Any], name: str, view: Any) -> Any:
        begin = read_clock()
        try:
            return choose(view)
        finally:
            self.seconds += read_clock() - begin


class TokenTimes:
    """A streamer for `generate` that records when each new token arrives, without the prompt."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._has_prompt = False

    def put(self, value: Any) -> None:
        """Called with the prompt, then with each new token."""
        if self._has_prompt:
            self.times.append(read_clock())
        self._has_prompt = True

    def end(self) -> None:
        """Called when generation has ended."""


class PrefillWatch:
    """Records time and cache of a decoder's first pass.

    `seconds` includes selection between layers, `lengths` are the cached tokens of each layer,
    `cached` the bytes of keys and values.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.lengths: list[int] = []
        self.cached = 0
        self._begin: float | None = None

    @contextmanager
    def watch_decoder(self, decoder: nn.Module) -> Iterator[None]:
        """Watch this decoder."""
        with (
            decoder.register_forward_pre_hook(self._record_start),
            decoder.register_forward_hook(self._record_end, with_kwargs=True),
        ):
            yield

    def _record_start(self, module: nn.Module, args: Any) -> None:
        if self._begin is None:
            self._begin = read_clock()

    def _record_end(
        self, module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any
    ) -> None:
        if not self.lengths and self._begin is not None:
            self.seconds = read_clock() - self._begin
            cache = kwargs["past_key_values"]
            self.lengths, self.cached = count_cached_tokens(cache), count_cache_bytes(cache)


class FlopCounter:
    """Counts the matrix products of the vision encoder and of the selection while they run.

    There is no formula for these: they differ between families and between methods. PyTorch's
    counter counts matrix products; those of quantized layers, which other libraries compute, are
    added by their sizes. `vision` includes the projector and excludes selection.
    """

    def __init__(self) -> None:
        self.selection = 0
        self._vision = 0
        self._selection_in_encoder = 0
        self._encoding = False
        self._base = nn.Module()

    @property
    def vision(self) -> int:
        """FLOPs of vision encoder and projector."""
        return self._vision - self._selection_in_encoder

    def watch_method(self, method: Method) -> Method:
        """Return the same method, with its computations counted."""
        return _wrap_choices(method, self._choose)

    @contextmanager
    def watch_encoder(self, base: Any) -> Iterator[None]:
        """Count the calls of a model's image and video features, and its layers."""
        self._base = base
        with ExitStack() as undo:
            for name in ("get_image_features", "get_video_features"):
                if not hasattr(base, name):
                    continue
                original = getattr(base, name)
                own = {name: original} if name in vars(base) else {}  # accelerate sets some
                undo.callback(vars(base).update, own)
                undo.callback(vars(base).pop, name)
                run = functools.partial(self._encode, original)
                vars(base)[name] = functools.wraps(original)(run)
            yield

    def _choose(self, choose: Callable[[Any], Any], name: str, view: Any) -> Any:
        with _count_products(self._base) as counts:
            choice = choose(view)
        self.selection += sum(counts)
        if name == "merge_in_vision_encoder":
            self._selection_in_encoder += sum(counts)
        return choice

    def _encode(self, encode: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._encoding:  # videos may pass through the image encoder
            return encode(*args, **kwargs)
        self._encoding = True
        try:
            with _count_products(self._base) as counts:
                features = encode(*args, **kwargs)
        finally:
            self._encoding = False
        self._vision += sum(counts)
        return features


@contextmanager
def _count_products(base: nn.Module) -> Iterator[list[int]]:
    """List the FLOPs when the block ends; those of linear layers by their sizes.

    PyTorch's counter does not count what other libraries compute in quantized layers.
    """
    counts: list[int] = []
    start = [0]  # layers without inner linear layers do not run inside each other

    def record_start(layer: nn.Module, args: Any) -> None:
        start[0] = counter.get_total_flops()

    def record_end(layer: Any, args: Any, output: Any) -> None:
        counted = counter.get_total_flops() - start[0]
        counts.append(2 * layer.in_features * output.numel() - counted)

    # The counter does not know every fused attention. MATH computes it as two plain products.
    with (
        ExitStack() as undo,
        sdpa_kernel(SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
    ):
        for layer in filter(is_innermost_linear, base.modules()):
            undo.callback(layer.register_forward_pre_hook(record_start).remove)
            undo.callback(layer.register_forward_hook(record_end).remove)
        yield counts
    counts.append(counter.get_total_flops())


def _wrap_choices(
    method: Method, choose: Callable[[Callable[[Any], Any], str, Any], Any]
) -> Method:
    """Copy the method; `choose` gets the original function, its name, and the view."""
    copied = copy.copy(method)
    for name in ("choose", "merge_in_vision_encoder"):
        run = functools.partial(choose, getattr(method, name), name)
        object.__setattr__(copied, name, run)  # methods are frozen dataclasses
    return copied


def count_cached_tokens(cache: Any) -> list[int]:
    """Return the tokens in each layer of a key-value cache."""
    return [int(layer.keys.shape[-2]) for layer in cache.layers]


def count_cache_bytes(cache: Any) -> int:
    """Return the bytes of all keys and values."""
    tensors = [each for layer in cache.layers for each in (layer.keys, layer.values)]
    return sum(each.numel() * each.element_size() for each in tensors)


def count_weight_bytes(model: nn.Module) -> int:
    """Return the bytes of the weights as they are stored, shared ones once."""
    parts = [part for weight in model.parameters() for part in list_stored(weight)]
    return sum(part.numel() * part.element_size() for part in parts)


def measure_peak(run: Callable[[], object]) -> int | None:
    """Return the bytes by which a call raises the memory in use, at its peak.

    With CUDA these are tensors on all devices. Without, it is the resident memory of the process,
    after memory that earlier calls freed was returned to the system; None where the system does not
    report it (Linux does).
    """
    gc.collect()
    if torch.cuda.is_available():
        return _measure_cuda_peak(run)
    if not (PROCESS / "clear_refs").exists():
        run()
        return None
    _release_freed_memory()
    (PROCESS / "clear_refs").write_text("5")  # resets the peak
    before = _read_process_bytes("VmRSS")
    run()
    return max(_read_process_bytes("VmHWM") - before, 0)


def _measure_cuda_peak(run: Callable[[], object]) -> int:
    devices = range(torch.cuda.device_count())
    before = [torch.cuda.memory_allocated(device) for device in devices]
    for device in devices:
        torch.cuda.reset_peak_memory_stats(device)
    run()
    peaks = [torch.cuda.max_memory_allocated(device) for device in devices]
    return sum(peaks) - sum(before)


def _release_freed_memory() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    if trim is not None:
        trim(0)


def _read_process_bytes(name: str) -> int:
    """Read a memory figure of this process from the kernel."""
    lines = (PROCESS / "status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))
