"""Which patches of the vision encoder make which visual token, where several make one.

A *tile* here is what the vision encoder encodes as one: an image, a tile of one, or a frame. The
*cells* of a tile are the visual tokens that it becomes. Vision encoders may pack tiles of different
sizes into one sequence; here all tiles are padded to the length of the longest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from tokencover.errors import InputError
from tokencover.families.layout import PATCH, Layout, Layouts, Media

Patches = tuple[int, int, int]
"""Frames, rows and columns of the patches of one image or video."""
PatchCounts = tuple[list[Patches], list[Patches]]
"""Patches of the images, and of the videos."""


@dataclass(frozen=True, slots=True)
class FoldedTiles:
    """The tiles of a pass, images first, in the order in which vision encoders got them.

    `index` ``(tiles, p)`` int64 has each patch's index among all tokens of the vision encoders, -1
    for padding; `class_index` ``(tiles, classes)`` those of class tokens. `sources` ``(tiles,
    cells, k)`` int64 are the patches that make each cell, as indices below ``tiles * p``, -1 for
    none; their `weights` sum to 1 for each cell. `images` and `videos` have a tensor ``(n,)`` each:
    for each visual token ``tile * tokens + token``, where the tokens of a tile are its classes,
    then its cells; -1 for tokens that are no cell.
    """

    index: Tensor
    class_index: Tensor
    sources: Tensor
    weights: Tensor
    images: list[Tensor]
    videos: list[Tensor]

    @property
    def tokens(self) -> int:
        """Number of class tokens and cells of a tile."""
        return self.class_index.shape[1] + self.sources.shape[1]


class Folding(Protocol):
    """Says which patches make which visual token."""

    def measure(self, media: Media) -> Any:
        """Read from the pixels what `place` needs; they are freed after encoding."""

    def place(
        self, base: Any, media: Media, layouts: Layouts, measured: Any, encoder: VisionEncoderFacts
    ) -> FoldedTiles:
        """Find the tiles of a pass, and the visual tokens that their cells are.

        `base` is the multimodal model, `layouts` are those of `media`, `measured` comes from
        `measure`.
        """


@dataclass(frozen=True, slots=True)
class VisionEncoderFacts:
    """The order of a vision encoder's tokens.

    Each tile begins with `classes` class tokens. If squares of patches are ordered by windows, each
    in raster order, `window` is the side of a window in squares.
    """

    classes: int
    window: int | None


# ---- squares of patches ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SquareFolding:
    """A square of patches of one frame, or of several, makes a token.

    ``patches(media)`` returns the patches of images and videos in the order of the layouts. They
    are in raster order, or square by square if `in_squares`.
    """

    patches: Callable[[Media], PatchCounts]
    in_squares: bool = False

    def measure(self, media: Media) -> PatchCounts:
        """Count the patches of the images."""
        return self.patches(media)

    def place(
        self,
        base: Any,
        media: Media,
        layouts: Layouts,
        measured: PatchCounts,
        encoder: VisionEncoderFacts,
    ) -> FoldedTiles:
        """See `Folding`; each frame of tokens is a tile."""
        every = [*layouts[0], *layouts[1]]
        sizes = [*measured[0], *measured[1]]
        squares = [
            self._compute_squares(layout, size, encoder.window)
            for layout, size in zip(every, sizes, strict=True)
        ]
        tiles = [
            square
            for square, layout in zip(squares, every, strict=True)
            for _ in range(layout.shape[0])
        ]
        cells, most = (max(tile.shape[axis] for tile in tiles) for axis in (0, 1))
        index = torch.full((len(tiles), cells, most), -1, dtype=torch.int64)
        class_index = torch.empty(len(tiles), encoder.classes, dtype=torch.int64)
        start = 0
        for number, tile in enumerate(tiles):
            class_index[number] = start + torch.arange(encoder.classes)
            index[number, : tile.shape[0], : tile.shape[1]] = start + encoder.classes + tile
            start += encoder.classes + tile.numel()
        numbers, first = [], 0
        for layout in every:
            token = encoder.classes + layout.row * layout.shape[2] + layout.column
            token += (first + layout.frame) * (encoder.classes + cells)
            numbers.append(torch.where(layout.kind == PATCH, token, -1))
            first += layout.shape[0]
        is_patch = index >= 0
        sources = torch.where(is_patch, torch.arange(index.numel()).view(index.shape), -1)
        weights = is_patch / is_patch.sum(-1, keepdim=True).clamp(min=1)
        images = len(layouts[0])
        return FoldedTiles(
            index.flatten(1), class_index, sources, weights, numbers[:images], numbers[images:]
        )

    def _compute_squares(self, layout: Layout, patches: Patches, window: int | None) -> Tensor:
        """``(cells, patches of a cell)``: indices among the patches of a tile, for all tiles."""
        _, rows, columns = layout.shape
        times, tall, wide = (
            _divide(whole, part) for whole, part in zip(patches, layout.shape, strict=True)
        )
        index = torch.arange(rows * columns * tall * wide)
        if self.in_squares:
            square = index.view(-1, tall * wide)
        else:
            square = index.view(rows, tall, columns, wide).transpose(1, 2).reshape(-1, tall * wide)
        if window is not None:
            square = square[order_by_windows(rows, columns, window).argsort()]
        return torch.cat([square + len(index) * time for time in range(times)], dim=1)


def _divide(patches: int, tokens: int) -> int:
    if tokens == 0 or patches % tokens:
        raise InputError(
            f"{patches} patches do not become {tokens} visual tokens evenly: prepare the image "
            "with the model's own processor, or use a method that does not read the vision "
            "encoder, for example tc.MoB."
        )
    return patches // tokens


def order_by_windows(rows: int, columns: int, window: int) -> Tensor:
    """Raster indices of a grid, window by window, each window in raster order."""
    row, column = (
        axis.flatten()
        for axis in torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    )
    across = -(-columns // window)
    return (row // window * across + column // window).argsort(stable=True)


# ---- tokens that are mixtures of patches, because an image of them was interpolated ----------

_MIXED_PATCHES = 4
"""Patches in a bilinear mixture."""


@dataclass(frozen=True, slots=True)
class PatchMixtures:
    """Visual tokens as mixtures of patches.

    `sources` ``(n, 4)`` int64 are indices among all patches of a pass, -1 for none; `weights`
    ``(n, 4)``. A token without sources is not from the vision encoder.
    """

    sources: Tensor
    weights: Tensor

    @classmethod
    def plain(cls, index: Tensor) -> PatchMixtures:
        """Tokens ``(n,)`` that are one patch each, or none if negative."""
        sources = functional.pad(index.unsqueeze(-1), (0, _MIXED_PATCHES - 1), value=-1)
        return cls(sources, (sources >= 0).float())

    @classmethod
    def join(cls, parts: Sequence[PatchMixtures]) -> PatchMixtures:
        """Concatenate tokens."""
        return cls(
            torch.cat([part.sources for part in parts]), torch.cat([part.weights for part in parts])
        )


def interpolate(index: Tensor, rows: int, columns: int) -> PatchMixtures:
    """Scale patches ``(tall, wide)`` bilinearly to ``rows * columns`` tokens.

    Corners are not aligned, and nothing is smoothed.
    """
    (row, tall), (column, wide) = (
        _compute_neighbors(size, wanted)
        for size, wanted in zip(index.shape, (rows, columns), strict=True)
    )
    sources = index[row[:, None, :, None], column[None, :, None, :]]
    weights = tall[:, None, :, None] * wide[None, :, None, :]
    return PatchMixtures(sources.reshape(-1, _MIXED_PATCHES), weights.reshape(-1, _MIXED_PATCHES))


def _compute_neighbors(size: int, wanted: int) -> tuple[Tensor, Tensor]:
    """Indices and weights ``(wanted, 2)`` of the two neighbors of each point along a side."""
    matrix = functional.interpolate(torch.eye(size).unsqueeze(0), wanted, mode="linear")[0].T
    weights, index = functional.pad(matrix, (0, int(size == 1))).topk(2, dim=-1)
    return index.clamp(max=size - 1), weights


def end_rows(tokens: PatchMixtures, columns: int) -> PatchMixtures:
    """Append a newline token to each row."""
    sources, weights = (
        functional.pad(part.view(-1, columns, _MIXED_PATCHES), (0, 0, 0, 1), value=empty).flatten(
            0, 1
        )
        for part, empty in ((tokens.sources, -1), (tokens.weights, 0))
    )
    return PatchMixtures(sources, weights)


def gather_cells(
    images: Sequence[PatchMixtures],
    videos: Sequence[PatchMixtures],
    index: Tensor,
    class_index: Tensor,
) -> FoldedTiles:
    """Tiles of one length, whose cells are mixtures of patches, even of several tiles.

    A visual token is a cell of the tile with the largest weight in it, the first of several. The
    cells of a tile are in sequence order. `index` and `class_index` are those of `FoldedTiles`.
    """
    tiles, patches = index.shape
    every = PatchMixtures.join([*images, *videos])
    largest = every.sources.gather(1, every.weights.argmax(1, keepdim=True)).squeeze(1)
    tile = torch.where(largest < 0, tiles, largest // patches)
    counts = tile.bincount(minlength=tiles + 1)
    order = tile.argsort(stable=True)
    cell = torch.empty_like(order)
    cell[order] = torch.arange(len(order)) - (counts.cumsum(0) - counts)[tile[order]]
    cells, is_cell = int(counts[:tiles].max()), tile < tiles
    sources = torch.full((tiles, cells, _MIXED_PATCHES), -1, dtype=torch.int64)
    weights = torch.zeros(sources.shape)
    sources[tile[is_cell], cell[is_cell]] = every.sources[is_cell]
    weights[tile[is_cell], cell[is_cell]] = every.weights[is_cell]
    classes = class_index.shape[1]
    numbers = torch.where(is_cell, tile * (classes + cells) + classes + cell, -1)
    parts = list(numbers.split([len(part.sources) for part in (*images, *videos)]))
    count = len(images)
    return FoldedTiles(index, class_index, sources, weights, parts[:count], parts[count:])
