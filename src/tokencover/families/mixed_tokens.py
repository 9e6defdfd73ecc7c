"""Visual tokens that are mixtures of patches: a picture of them was interpolated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from tokencover.families.folding import FoldedCrops

MOST = 4
"""Patches in a bilinear mixture."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """Some visual tokens.

    Attributes
    ----------
    sources : Tensor
        ``(n, 4)`` int64, places among all patches of a pass; -1 for none. A token without any is
        not from the tower.
    weights : Tensor
        ``(n, 4)``, the share of each.
    """

    sources: Tensor
    weights: Tensor

    @classmethod
    def plain(cls, places: Tensor) -> Mixed:
        """Tokens ``(n,)`` that are a patch each, or none where negative."""
        sources = functional.pad(places.unsqueeze(-1), (0, MOST - 1), value=-1)
        return cls(sources, (sources >= 0).float())

    @classmethod
    def join(cls, parts: Sequence[Mixed]) -> Mixed:
        """One after the other."""
        return cls(
            torch.cat([each.sources for each in parts]), torch.cat([each.weights for each in parts])
        )


def interpolate(places: Tensor, rows: int, columns: int) -> Mixed:
    """Patches ``(tall, wide)`` scaled to tokens ``rows * columns``, as bilinear interpolation does.

    Corners are not aligned, and nothing is smoothed.
    """
    (row, tall), (column, wide) = (
        _find_neighbours(size, wanted)
        for size, wanted in zip(places.shape, (rows, columns), strict=True)
    )
    sources = places[row[:, None, :, None], column[None, :, None, :]]
    weights = tall[:, None, :, None] * wide[None, :, None, :]
    return Mixed(sources.reshape(-1, MOST), weights.reshape(-1, MOST))


def _find_neighbours(size: int, wanted: int) -> tuple[Tensor, Tensor]:
    """For each of `wanted` points along a side the places of two neighbours, and their shares."""
    shares = functional.interpolate(torch.eye(size).unsqueeze(0), wanted, mode="linear")[0].T
    weights, places = functional.pad(shares, (0, int(size == 1))).topk(2, dim=-1)
    return places.clamp(max=size - 1), weights


def end_rows(tokens: Mixed, columns: int) -> Mixed:
    """Add a newline token to the end of each row."""
    sources, weights = (
        functional.pad(each.view(-1, columns, MOST), (0, 0, 0, 1), value=empty).flatten(0, 1)
        for each, empty in ((tokens.sources, -1), (tokens.weights, 0))
    )
    return Mixed(sources, weights)


def gather_cells(
    images: Sequence[Mixed], videos: Sequence[Mixed], index: Tensor, class_index: Tensor
) -> FoldedCrops:
    """Crops of one length, whose cells are mixtures of patches, even of several crops.

    A visual token is a cell of the crop that has the largest share in it, the first of several; the
    cells of a crop are in the order of the sequence.

    Parameters
    ----------
    images, videos : sequence of Mixed
        The visual tokens of each.
    index, class_index : Tensor
        See `FoldedCrops`.
    """
    crops, patches = index.shape
    every = Mixed.join([*images, *videos])
    largest = every.sources.gather(1, every.weights.argmax(1, keepdim=True)).squeeze(1)
    crop = torch.where(largest < 0, crops, largest // patches)
    counts = crop.bincount(minlength=crops + 1)
    order = crop.argsort(stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order)) - (counts.cumsum(0) - counts)[crop[order]]
    cells, there = int(counts[:crops].max()), crop < crops
    sources = torch.full((crops, cells, MOST), -1, dtype=torch.int64)
    weights = torch.zeros(sources.shape)
    sources[crop[there], place[there]] = every.sources[there]
    weights[crop[there], place[there]] = every.weights[there]
    classes = class_index.shape[1]
    numbers = torch.where(there, crop * (classes + cells) + classes + place, -1)
    parts = list(numbers.split([len(each.sources) for each in (*images, *videos)]))
    count = len(images)
    return FoldedCrops(index, class_index, sources, weights, parts[:count], parts[count:])
