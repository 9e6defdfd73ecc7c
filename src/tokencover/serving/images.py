"""The images of a request: their tensors, cached encoder outputs, and positions of kept tokens.

An engine counts the tokens of the pruned prompt. In `positions="original"`, text after an image
starts where it would after all visual tokens, and kept tokens stay where they were.
`compute_text_positions` gives the first, which depends only on image sizes. The second is known
after the selection and travels with the hidden states, in extra columns (`pack_offsets`);
`PositionOffsets` adds it when the decoder begins.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

GRIDS = "image_grid_thw"
PIXELS = "pixel_values"

ImageTensors = Mapping[str, Any]
"""Tensors by name, the arguments of the model's encoder."""


def split_images(images: ImageTensors) -> list[dict[str, Tensor]]:
    """Return the tensors of each image.

    Two forms are known: a row for each image (LLaVA), and all patches in one row with a grid for
    each image (Qwen-VL).
    """
    if GRIDS in images:
        grids = torch.as_tensor(images[GRIDS])
        pixels = images[PIXELS].split(grids.prod(-1).tolist())
        return [{PIXELS: part, GRIDS: grid} for part, grid in zip(pixels, grids, strict=True)]
    count = len(images[PIXELS])
    return [
        {name: torch.as_tensor(values[index]) for name, values in images.items()}
        for index in range(count)
    ]


def join_images(images: Sequence[Mapping[str, Tensor]]) -> dict[str, Any]:
    """Undo `split_images`; tensors of different sizes stay a list."""
    if GRIDS in images[0]:
        return {
            PIXELS: torch.cat([image[PIXELS] for image in images]),
            GRIDS: torch.stack([image[GRIDS] for image in images]),
        }
    joined: dict[str, Any] = {}
    for name in images[0]:
        values = [image[name] for image in images]
        is_equal = all(value.shape == values[0].shape for value in values)
        joined[name] = torch.stack(values) if is_equal else values
    return joined


class VisionCache:
    """Vision-encoder outputs of recently used images, at most `size` bytes; 0 caches nothing."""

    def __init__(self, size: int) -> None:
        self._size, self._used = size, 0
        self._outputs: OrderedDict[str, Tensor] = OrderedDict()

    def get(self, image: str) -> Tensor | None:
        """Return the output for an image, None if it is not cached."""
        if image not in self._outputs:
            return None
        self._outputs.move_to_end(image)
        return self._outputs[image]

    def put(self, image: str, output: Tensor) -> None:
        """Cache an output, and evict the least recently used ones."""
        needed = output.numel() * output.element_size()
        if not image or image in self._outputs or needed > self._size:
            return
        # A copy: the output is often a slice of the whole batch, which would stay in memory.
        self._outputs[image] = output.detach().clone()
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


def compute_fingerprint(parts: Iterable[Tensor]) -> str:
    """Hash the tensors of an image, the encoder's input."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(f"{part.dtype} {tuple(part.shape)};".encode())
        whole = part.detach().cpu().contiguous()
        digest.update(whole.view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def split_batches(sizes: Sequence[int], limit: int) -> list[list[int]]:
    """Group consecutive images so the sizes of no group exceed `limit`, except of a single image.

    Returns indices of `sizes`, the visual tokens of each image before pruning.
    """
    batches: list[list[int]] = []
    used = 0
    for index, size in enumerate(sizes):
        if batches and used + size <= limit:
            batches[-1].append(index)
            used += size
        else:
            batches.append([index])
            used = size
    return batches


_BASE = 256
"""Every float type of model weights represents integers up to here exactly."""
COLUMNS_PER_AXIS = 2


@dataclass(frozen=True, slots=True)
class PlacedImage:
    """One image in a pruned prompt.

    `offset` is the index of its first kept token, `kept` the number of its tokens. `advance` is the
    distance of positions over it: the number of all its tokens, or the longer side of its grid
    where positions have rows and columns.
    """

    offset: int
    kept: int
    advance: int


def compute_text_positions(length: int, images: Sequence[PlacedImage]) -> tuple[Tensor, int]:
    """Compute positions of a pruned prompt of `length` tokens as if no image was pruned.

    Returns ``(3, length)`` int64, equal in all rows: for text tokens their position, for tokens of
    an image the position at which it begins; and the difference of position and index for generated
    tokens.
    """
    row = torch.empty(length, dtype=torch.int64)
    index = position = 0
    for image in images:
        text = image.offset - index
        row[index : image.offset] = torch.arange(position, position + text)
        position += text
        row[image.offset : image.offset + image.kept] = position
        index, position = image.offset + image.kept, position + image.advance
    row[index:] = torch.arange(position, position + length - index)
    return row.expand(3, -1).clone(), position - index


def pack_offsets(offsets: Tensor, like: Tensor) -> Tensor:
    """Write offsets ``(k, axes)`` as columns ``(k, 2 * axes)`` that are exact in 16 bits."""
    digits = torch.stack([offsets // _BASE, offsets % _BASE], dim=-1).flatten(1)
    return digits.to(like)


def unpack_offsets(columns: Tensor) -> Tensor:
    """Return the offsets that `pack_offsets` wrote."""
    digits = columns.round().to(torch.int64).unflatten(1, (-1, COLUMNS_PER_AXIS))
    offsets: Tensor = digits[..., 0] * _BASE + digits[..., 1]
    return offsets


class PositionOffsets:
    """Adds the offsets of kept tokens in their images to the positions of a step.

    Its tensors stay at one address, so captured graphs stay valid. `axes` are the rows of the
    positions that offsets belong to: ``(0,)``, or ``(1, 2)`` for M-RoPE. `max_length` is the
    longest step.
    """

    def __init__(self, axes: tuple[int, ...], max_length: int = 0) -> None:
        self._axes, self._max_length = axes, max_length
        self._offsets = torch.zeros(3, 0, dtype=torch.int64)
        self._sums = torch.zeros(3, 0, dtype=torch.int64)
        self._written = 0

    @property
    def columns(self) -> int:
        """How many columns after the hidden states hold offsets."""
        return COLUMNS_PER_AXIS * len(self._axes)

    def strip(self, rows: Sequence[Tensor], visual: Tensor | None) -> list[Tensor]:
        """Record the offsets of a step's visual tokens, and return their hidden states.

        `rows` are ``(k, d + columns)`` in the order of the step, `visual` is ``(s,)`` bool, or None
        for a step without visual tokens.
        """
        self._offsets[:, : self._written] = 0
        self._written = 0
        if visual is None or not len(rows):
            return list(rows)
        offsets = torch.cat([unpack_offsets(each[:, -self.columns :]) for each in rows])
        length = len(visual)
        self._grow(length, offsets.device)
        positions = visual.nonzero().squeeze(-1).to(offsets.device)
        for column, axis in enumerate(self._axes):
            self._offsets[axis, positions] = offsets[:, column]
        self._written = length
        return [each[:, : -self.columns] for each in rows]

    def add_to(self, positions: Tensor) -> Tensor:
        """Return the positions ``(3, s)`` of a step, with kept tokens where they were."""
        length = positions.shape[1]
        self._grow(length, positions.device)
        sums = self._sums[:, :length]
        torch.add(positions, self._offsets[:, :length], out=sums)
        return sums

    def _grow(self, length: int, device: torch.device) -> None:
        if self._offsets.shape[1] >= length and self._offsets.device == device:
            return
        # One more than the longest step: all slices then look the same to a compiler.
        width = max(length, self._max_length) + 1
        larger = torch.zeros(3, width, dtype=torch.int64, device=device)
        larger[:, : self._offsets.shape[1]] = self._offsets.to(device)
        self._offsets, self._sums = larger, torch.zeros_like(larger)
