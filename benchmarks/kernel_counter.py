"""Counts what a computation asks of a device: kernels, bytes, products, host reads, peak memory.

It watches the operators that torch dispatches, so it works on tensors of any device: on a CPU, and
on "meta", where tensors have shapes and no values. What it counts is what would be launched on an
accelerator, with these rules.

- An operator is one kernel. Views and allocations are none. Some operators launch several kernels
  (sorts, top-k), on some devices more than on others; in the loops that matter none of these occur.
- A kernel reads each element of its inputs once and writes each of its outputs once; a matrix times
  its own transpose is read once. Gathering
  reads what it returns; scattering touches what it writes.
- The host reads when it asks for a value (`tolist`, `item`, `bool`), or for a shape that depends on
  values (`nonzero`, `unique`, indexing by a mask).
- Peak: the largest sum of the sizes of all tensors made since it began that lived at one time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ALLOCATIONS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach"}
ALLOCATIONS |= {"alias", "lift_fresh", "_unsafe_view", "_reshape_alias", "resize_", "expand"}
GATHERS = {"gather", "index_select", "index", "embedding"}
SCATTERS = {"scatter_", "index_fill_", "index_put_", "scatter_add_", "scatter_reduce_"}
OVERWRITES = {"fill_", "zero_", "copy_"}
READS = {"_local_scalar_dense", "nonzero", "unique", "_unique2", "masked_select", "equal"}
READING_METHODS = {Tensor.tolist, Tensor.numpy, Tensor.cpu}
PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "mv", "dot"}


@dataclass
class Tally:
    """What was counted.

    Attributes
    ----------
    kernels : list of tuple
        For each kernel its name, bytes, and multiply-adds of float32 and of float64.
    reads : int
        How often the host waited for a value.
    peak : int
        Bytes.
    """

    kernels: list[tuple[str, int, int, int]] = field(default_factory=list)
    reads: int = 0
    peak: int = 0

    @property
    def bytes(self) -> int:
        """Bytes moved by all kernels."""
        return sum(kernel[1] for kernel in self.kernels)

    @property
    def names(self) -> Counter[str]:
        """How many kernels of each name."""
        return Counter(kernel[0] for kernel in self.kernels)


class _Operators(TorchDispatchMode):
    def __init__(self, tally: Tally) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tally = tally
        self._living: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        self._watch_memory(found, (args, kwargs))
        if name in READS or (name == "index" and _has_mask(args[1])):
            self._tally.reads += 1
        if not (func.is_view or name in ALLOCATIONS):
            inputs, outputs = _list_tensors(args), _list_tensors(found)
            moved = _count_bytes(name, inputs, outputs)
            products = _count_products(name, inputs, outputs)
            double = products if outputs and outputs[0].dtype == torch.float64 else 0
            self._tally.kernels.append((name, moved, products - double, double))
        return found

    def _watch_memory(self, found: object, given: object) -> None:
        known = {each.untyped_storage()._cdata for each in _list_tensors(given)}
        for each in _list_tensors(found):
            storage = each.untyped_storage()
            if storage._cdata not in known:  # a view of something has its memory
                self._living[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self._living = {key: entry for key, entry in self._living.items() if not entry[0].expired()}
        now = sum(size for _, size in self._living.values())
        self._tally.peak = max(self._tally.peak, now)


class _Reads(TorchFunctionMode):
    """Methods that read the memory of a CPU tensor without dispatching anything."""

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self._tally = tally

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        if func in READING_METHODS:
            self._tally.reads += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def count_kernels() -> Iterator[Tally]:
    """Count what happens inside; read the tally afterwards."""
    tally = Tally()
    with _Reads(tally), _Operators(tally):
        yield tally


def _list_tensors(values: object) -> list[Tensor]:
    return [each for each in tree_leaves(values) if isinstance(each, Tensor)]


def _has_mask(indices: Any) -> bool:
    return any(isinstance(each, Tensor) and each.dtype == torch.bool for each in indices)


def _size(tensor: Tensor) -> int:
    """Bytes of the distinct elements: an expanded dimension is stored once."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return math.prod(size for size, stride in pairs if stride) * tensor.element_size()


def _count_bytes(name: str, inputs: list[Tensor], outputs: list[Tensor]) -> int:
    written = sum(map(_size, outputs))
    if name in GATHERS:
        return 2 * written + sum(map(_size, inputs[1:]))
    if name in SCATTERS:
        touched = sum(map(_size, inputs[1:]))
        return 2 * touched
    if name in OVERWRITES:
        return written + sum(map(_size, inputs[1:]))
    distinct = {_locate(each): _size(each) for each in inputs}
    return written + sum(distinct.values())


def _locate(tensor: Tensor) -> tuple[int, int, int]:
    """Where in memory; the same for a matrix and its transpose."""
    return tensor.untyped_storage()._cdata, int(tensor.storage_offset()), tensor.numel()


def _count_products(name: str, inputs: list[Tensor], outputs: list[Tensor]) -> int:
    """Multiply-adds of a matrix product."""
    if name not in PRODUCTS:
        return 0
    left = inputs[1] if name in ("addmm", "baddbmm") else inputs[0]
    return outputs[0].numel() * left.shape[-1]
