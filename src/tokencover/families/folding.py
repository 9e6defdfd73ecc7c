"""Towers several of whose patches become one visual token: which ones, and in what order.

A crop is an image, a tile or a frame; its cells are the visual tokens that it becomes. Towers may
pack crops of different sizes into one sequence: here all of them are as long as the longest, and
what is beyond a crop is marked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from tokencover.errors import InputError
from tokencover.families.layout import PATCH, Layout, Media

Patches = tuple[int, int, int]
"""Frames, rows and columns of the patches of one image or video."""
Layouts = tuple[list[Layout], list[Layout]]
"""Those of images, and those of videos."""


@dataclass(frozen=True, slots=True)
class FoldedCrops:
    """The crops of a pass, images first, in the order in which towers were given them.

    Attributes
    ----------
    index : Tensor
        ``(c, p)`` int64: place of each patch of a crop among all tokens of the towers; -1 beyond
        the crop.
    class_index : Tensor
        ``(c, classes)`` int64, the same for class tokens.
    sources : Tensor
        ``(c, cells, k)`` int64: the patches that make each cell, as places in ``c * p``; -1 for
        none.
    weights : Tensor
        ``(c, cells, k)``, the share of each; they add up to 1 for each cell.
    images, videos : list of Tensor
        ``(n,)`` int64 for each of them: crop times tokens of a crop (classes and cells) plus token,
        for each of its visual tokens; -1 where one is no cell.
    """

    index: Tensor
    class_index: Tensor
    sources: Tensor
    weights: Tensor
    images: list[Tensor]
    videos: list[Tensor]

    @property
    def tokens(self) -> int:
        """Class tokens and cells of a crop."""
        return self.class_index.shape[1] + self.sources.shape[1]


class Folding(Protocol):
    """Says which patches of the tower make which visual token."""

    def measure(self, media: Media) -> Any:
        """What `place` has to know of pixels, which are let go soon after the towers ran."""

    def place(
        self, base: Any, media: Media, layouts: Layouts, measured: Any, tower: TowerFacts
    ) -> FoldedCrops:
        """Find the crops of a pass, and which visual tokens their cells are.

        Parameters
        ----------
        base : nn.Module
            The multimodal model.
        media, layouts
            The pictures of the pass, and where their visual tokens lie.
        measured : Any
            What `measure` gave for them.
        tower : TowerFacts
            About the tower.
        """


@dataclass(frozen=True, slots=True)
class TowerFacts:
    """What matters of a tower to the order of its tokens.

    Attributes
    ----------
    classes : int
        Class tokens at the beginning of each crop.
    window : int or None
        If the tower has its squares of patches in the order of windows of so many by so many,
        raster order within each.
    """

    classes: int
    window: int | None


@dataclass(frozen=True, slots=True)
class SquareFolding:
    """Squares of patches of one frame, or of several, make a token each.

    Attributes
    ----------
    patches : callable
        Gives, for the media of a pass, the patches of every image and of every video, in the order
        of the family's layouts.
    in_squares : bool
        Whether the patches of a token follow each other in the tower; otherwise those of a frame
        are in raster order.
    """

    patches: Callable[[Media], tuple[list[Patches], list[Patches]]]
    in_squares: bool = False

    def measure(self, media: Media) -> tuple[list[Patches], list[Patches]]:
        """The patches of the pictures."""
        return self.patches(media)

    def place(
        self, base: Any, media: Media, layouts: Layouts, measured: Any, tower: TowerFacts
    ) -> FoldedCrops:
        """See `Folding`; each frame of tokens is a crop."""
        pictures = [*layouts[0], *layouts[1]]
        sizes = [*measured[0], *measured[1]]
        found = [
            self._find_squares(layout, size, tower.window)
            for layout, size in zip(pictures, sizes, strict=True)
        ]
        crops = [
            squares
            for squares, layout in zip(found, pictures, strict=True)
            for _ in range(layout.shape[0])
        ]
        cells, most = (max(crop.shape[axis] for crop in crops) for axis in (0, 1))
        index = torch.full((len(crops), cells, most), -1, dtype=torch.int64)
        class_index = torch.empty(len(crops), tower.classes, dtype=torch.int64)
        start = 0
        for row, crop in enumerate(crops):
            class_index[row] = start + torch.arange(tower.classes)
            index[row, : crop.shape[0], : crop.shape[1]] = start + tower.classes + crop
            start += tower.classes + crop.numel()
        numbers, first = [], 0
        for layout in pictures:
            token = tower.classes + layout.row * layout.shape[2] + layout.column
            places = (first + layout.frame) * (tower.classes + cells) + token
            numbers.append(torch.where(layout.kind == PATCH, places, -1))
            first += layout.shape[0]
        there = index >= 0
        sources = torch.where(there, torch.arange(index.numel()).view(index.shape), -1)
        weights = there / there.sum(-1, keepdim=True).clamp(min=1)
        images = len(layouts[0])
        return FoldedCrops(
            index.flatten(1), class_index, sources, weights, numbers[:images], numbers[images:]
        )

    def _find_squares(self, layout: Layout, patches: Patches, window: int | None) -> Tensor:
        """``(cells, patches of a cell)``: places among the patches of a crop, for all its crops."""
        _, rows, columns = layout.shape
        times, tall, wide = (
            _divide(whole, part) for whole, part in zip(patches, layout.shape, strict=True)
        )
        places = torch.arange(rows * columns * tall * wide)
        if self.in_squares:
            square = places.view(-1, tall * wide)
        else:
            square = places.view(rows, tall, columns, wide).transpose(1, 2).reshape(-1, tall * wide)
        if window is not None:
            square = square[order_by_windows(rows, columns, window).argsort()]
        return torch.cat([square + len(places) * time for time in range(times)], dim=1)


def _divide(patches: int, tokens: int) -> int:
    if tokens == 0 or patches % tokens:
        raise InputError(
            f"{patches} patches do not become {tokens} visual tokens evenly: prepare the picture "
            "with the model's own processor, or use a method that does not read the vision tower, "
            "for example tc.MoB."
        )
    return patches // tokens


def order_by_windows(rows: int, columns: int, window: int) -> Tensor:
    """Places of a grid in raster order, window by window, each in raster order itself."""
    row, column = (
        axis.flatten()
        for axis in torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    )
    across = -(-columns // window)
    return (row // window * across + column // window).argsort(stable=True)
