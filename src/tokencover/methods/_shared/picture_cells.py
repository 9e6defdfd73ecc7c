"""Cut pictures into cells of nearly equal size, as many as tokens are to be left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import torch

from tokencover.methods.view import View

_Placed = tuple[int, int, int]
"""Row, column, token."""
_Rectangle = tuple[int, int, int, int]
"""Top, bottom, left, right; bottom and right lie outside."""


@dataclass(frozen=True, slots=True)
class PictureCell:
    """Neighbouring tokens of one sample.

    Attributes
    ----------
    members : list of int
        Their indices among the visual tokens of the view.
    center : int
        The one that lies nearest to the middle, the lowest index of several.
    """

    members: list[int]
    center: int


def cut_into_cells(view: View, counts: Sequence[int]) -> list[list[PictureCell]]:
    """Cut all pictures of each sample into this many cells, of nearly equal size and square.

    A view, tile or frame is a picture of its own. Each gets a share of the cells that goes with its
    tokens, rounded along the sequence, so that few cells are spread over many frames. A cell is a
    rectangle; where tokens do not fill a rectangle, it is a run of them in raster order. Tokens
    without a place in a picture (class tokens) are in no cell, unless there are not enough others:
    then all others are cells of their own.

    Parameters
    ----------
    view : View
        Where the tokens lie.
    counts : sequence of int
        How many cells for each sample, at most as many as it has tokens.
    """
    places = torch.stack([view.medium, view.frame, view.row, view.column], dim=-1)
    return [
        _cut_sample(places[sample, mask].tolist(), counts[sample])
        for sample, mask in enumerate(view.mask)
    ]


def _cut_sample(places: list[list[int]], count: int) -> list[PictureCell]:
    pictures: dict[tuple[int, int], list[_Placed]] = {}
    nowhere = []
    for token, (medium, frame, row, column) in enumerate(places):
        if row < 0:
            nowhere.append(token)
        else:
            pictures.setdefault((medium, frame), []).append((row, column, token))
    sizes = [len(picture) for picture in pictures.values()]
    rest = max(0, count - sum(sizes))
    shares = _share_out(sizes, count - rest)
    cells = [
        cell
        for picture, share in zip(pictures.values(), shares, strict=True)
        for cell in _cut_picture(picture, share)
    ]
    return cells + _cut_runs(nowhere, rest)


def _share_out(sizes: Sequence[int], count: int) -> list[int]:
    """Divide a count in proportion to sizes; no share is larger than its size."""
    total, edges, seen = sum(sizes), [0], 0
    for size in sizes:
        seen += size
        edges.append((2 * seen * count + total) // (2 * total))
    return [end - begin for begin, end in pairwise(edges)]


def _cut_picture(picture: list[_Placed], count: int) -> list[PictureCell]:
    table = {(row, column): token for row, column, token in picture}
    top, left = min(row for row, _ in table), min(column for _, column in table)
    rows = max(row for row, _ in table) - top + 1
    columns = max(column for _, column in table) - left + 1
    if not len(table) == len(picture) == rows * columns:
        return _cut_runs([token for _, _, token in sorted(picture)], count)
    cells = []
    for first, last, begin, end in cut_rectangles(rows, columns, count):
        members = [
            table[top + row, left + column]
            for row in range(first, last)
            for column in range(begin, end)
        ]
        middle = table[top + (first + last - 1) // 2, left + (begin + end - 1) // 2]
        cells.append(PictureCell(members, middle))
    return cells


def _cut_runs(tokens: Sequence[int], count: int) -> list[PictureCell]:
    """Cut a row of tokens into runs of nearly equal length."""
    edges = [number * len(tokens) // count for number in range(count + 1)] if count else []
    return [
        PictureCell(list(tokens[begin:end]), tokens[(begin + end - 1) // 2])
        for begin, end in pairwise(edges)
    ]


@lru_cache(maxsize=256)
def cut_rectangles(rows: int, columns: int, count: int) -> tuple[_Rectangle, ...]:
    """Cut a grid into `count` rectangles of nearly equal size, as square as they can be.

    The grid is cut into bands of rows, each band into cells. Of all numbers of bands the one is
    taken for which tokens lie nearest to the middle of their cells, in squared distance; the
    smallest of several.
    """
    if count == 0:
        return ()
    # No band may have more cells than there are columns.
    fewest, most = -(-count // columns), min(rows, count)
    number = min(
        range(fewest, most + 1),
        key=lambda bands: _measure_spread(_cut_bands(rows, count, bands), columns),
    )
    found, top = [], 0
    for height, cells in _cut_bands(rows, count, number):
        edges = [cell * columns // cells for cell in range(cells + 1)]
        found += [(top, top + height, *ends) for ends in pairwise(edges)]
        top += height
    return tuple(found)


def _cut_bands(rows: int, count: int, bands: int) -> list[tuple[int, int]]:
    """Height and number of cells of each band; heights go with the cells."""
    found, top, seen = [], 0, 0
    for band in range(1, bands + 1):
        cells = band * count // bands - seen
        seen += cells
        fair = (2 * rows * seen + count) // (2 * count)
        bottom = max(fair, top + 1)
        found.append((bottom - top, cells))
        top = bottom
    return found


def _measure_spread(bands: Sequence[tuple[int, int]], columns: int) -> int:
    """Twelve times the squared distances of all tokens to the middle of their cells, summed."""
    total = 0
    for height, cells in bands:
        width, wider = divmod(columns, cells)
        for wide, number in ((width, cells - wider), (width + 1, wider)):
            total += number * height * wide * (height * height + wide * wide - 2)
    return total
