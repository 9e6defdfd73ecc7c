"""Outputs of the vision tower, remembered by picture within a bound; and encoding in parts."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


class TowerMemory:
    """The outputs for the pictures that were used last.

    Parameters
    ----------
    size : int
        Bytes that they may take together; 0 remembers nothing.
    """

    def __init__(self, size: int) -> None:
        self._size, self._used = size, 0
        self._outputs: OrderedDict[str, Tensor] = OrderedDict()

    def find(self, picture: str) -> Tensor | None:
        """The output for a picture, if it is remembered."""
        if picture not in self._outputs:
            return None
        self._outputs.move_to_end(picture)
        return self._outputs[picture]

    def keep(self, picture: str, output: Tensor) -> None:
        """Remember an output, and forget the ones that were not used for longest."""
        needed = output.numel() * output.element_size()
        if not picture or picture in self._outputs or needed > self._size:
            return
        # A copy: what the tower returns is often a slice of the whole batch, which would stay.
        self._outputs[picture] = output.detach().clone()
        self._used += needed
        while self._used > self._size:
            _, oldest = self._outputs.popitem(last=False)
            self._used -= oldest.numel() * oldest.element_size()

    def __len__(self) -> int:
        return len(self._outputs)

    @property
    def used(self) -> int:
        """Bytes in use."""
        return self._used


def fingerprint(parts: Iterable[Tensor]) -> str:
    """A name for a picture, from the tensors that the tower gets."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(f"{part.dtype} {tuple(part.shape)};".encode())
        whole = part.detach().cpu().contiguous()
        digest.update(whole.view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def cut_into_parts(sizes: Sequence[int], limit: int) -> list[list[int]]:
    """Group neighbours so that no group has more than `limit`, unless it is one alone.

    Parameters
    ----------
    sizes : sequence of int
        Of each picture, its visual tokens before pruning.
    limit : int
        What the tower may be given at once.

    Returns
    -------
    list of list of int
        Places in `sizes`.
    """
    parts: list[list[int]] = []
    filled = 0
    for place, size in enumerate(sizes):
        if parts and filled + size <= limit:
            parts[-1].append(place)
            filled += size
        else:
            parts.append([place])
            filled = size
    return parts
