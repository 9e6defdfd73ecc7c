"""What is put on a model and a method at work to measure time, memory and operations."""

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
        self.method = _wrap_choices(method, self._choose)
        self.seconds = 0.0

    def _choose(self, choose: Callable[[Any], Any], name: str, view: Any) -> Any:
        begin = read_clock()
        try:
            return choose(view)
        finally:
            self.seconds += read_clock() - begin


class TokenTimes:
    """Notes when `generate` has each new token; the prompt comes first and is not noted.

    It is what transformers calls a streamer, by its two methods.
    """

    def __init__(self) -> None:
        self.times: list[float] = []
        self._prompt_came = False

    def put(self, value: Any) -> None:
        """Called with the prompt, then with each new token."""
        if self._prompt_came:
            self.times.append(read_clock())
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
        Cached tokens of each layer after it.
    cached : int
        Bytes of keys and values.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.lengths: list[int] = []
        self.cached = 0
        self._begin: float | None = None

    @contextmanager
    def watch_decoder(self, decoder: nn.Module) -> Iterator[None]:
        """Watch this decoder."""
        with ExitStack() as undo:
            before = decoder.register_forward_pre_hook(self._note_start)
            undo.callback(before.remove)
            after = decoder.register_forward_hook(self._note_end, with_kwargs=True)
            undo.callback(after.remove)
            yield

    def _note_start(self, module: nn.Module, args: Any) -> None:
        if self._begin is None:
            self._begin = read_clock()

    def _note_end(self, module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        if not self.lengths and self._begin is not None:
            self.seconds = read_clock() - self._begin
            cache = kwargs["past_key_values"]
            self.lengths, self.cached = count_cached_tokens(cache), count_cache_bytes(cache)


class OperationCounter:
    """Counts the matrix products of the vision tower and of the choosing, while they run.

    There is no formula for these: every family has a tower of its own, and every method its own way
    to choose. PyTorch's counter sees matrix products alone; products of quantized layers, which
    other libraries compute, are added by their sizes.

    Attributes
    ----------
    vision : int
        Operations of the vision tower and the projector, without choosing.
    selection : int
        Operations of choosing.
    """

    def __init__(self) -> None:
        self.selection = 0
        self._vision = 0
        self._selection_in_tower = 0
        self._encoding = False
        self._base = nn.Module()

    @property
    def vision(self) -> int:
        """See the class."""
        return self._vision - self._selection_in_tower

    def watch_method(self, method: Method) -> Method:
        """The same method; what it computes is counted."""
        return _wrap_choices(method, self._choose)

    @contextmanager
    def watch_encoder(self, base: Any) -> Iterator[None]:
        """Watch the calls of a multimodal model's encoder, and its layers that methods run."""
        self._base = base
        with ExitStack() as undo:
            for name in ("get_image_features", "get_video_features"):
                if not hasattr(base, name):
                    continue
                original = getattr(base, name)
                own = {name: original} if name in vars(base) else {}  # accelerate puts some there
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
            self._selection_in_tower += sum(counts)
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
    """List the operations when the block ends; those of linear layers by their sizes.

    PyTorch's counter does not see what other libraries compute in quantized layers.
    """
    counts: list[int] = []
    began = [0]  # layers that wrap no other one do not run inside each other

    def note_start(layer: nn.Module, args: Any) -> None:
        began[0] = counter.get_total_flops()

    def note_end(layer: Any, args: Any, output: Any) -> None:
        seen = counter.get_total_flops() - began[0]
        counts.append(2 * layer.in_features * output.numel() - seen)

    # The counter does not know every fused attention; written out, it is two plain products.
    with (
        ExitStack() as undo,
        sdpa_kernel(SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
    ):
        for layer in filter(is_innermost_linear, base.modules()):
            undo.callback(layer.register_forward_pre_hook(note_start).remove)
            undo.callback(layer.register_forward_hook(note_end).remove)
        yield counts
    counts.append(counter.get_total_flops())


def _wrap_choices(
    method: Method, choose: Callable[[Callable[[Any], Any], str, Any], Any]
) -> Method:
    """A copy of the method; `choose` gets the real way to choose, its name, and the view."""
    copied = copy.copy(method)
    for name in ("choose", "merge_in_vision_encoder"):
        run = functools.partial(choose, getattr(method, name), name)
        object.__setattr__(copied, name, run)  # dataclasses of methods are frozen
    return copied


def count_cached_tokens(cache: Any) -> list[int]:
    """Tokens in each layer of a key-value cache."""
    return [int(layer.keys.shape[-2]) for layer in cache.layers]


def count_cache_bytes(cache: Any) -> int:
    """Bytes of all keys and values."""
    tensors = [each for layer in cache.layers for each in (layer.keys, layer.values)]
    return sum(each.numel() * each.element_size() for each in tensors)


def count_weight_bytes(model: nn.Module) -> int:
    """Bytes of the weights; shared ones once, and quantized or split ones as they are stored."""
    parts = [part for weight in model.parameters() for part in list_stored(weight)]
    return sum(part.numel() * part.element_size() for part in parts)


def measure_peak(run: Callable[[], object]) -> int | None:
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
        return _measure_cuda_peak(run)
    if not (PROCESS / "clear_refs").exists():
        run()
        return None
    _give_back_freed_memory()
    (PROCESS / "clear_refs").write_text("5")  # the peak starts again from here
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


def _give_back_freed_memory() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it
    if trim is not None:
        trim(0)


def _read_process_bytes(name: str) -> int:
    """A memory figure of this process, from the kernel."""
    lines = (PROCESS / "status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))
