"""Cut images into cells of nearly equal size, one per token to keep."""

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
"""Top, bottom, left, right; bottom and right are exclusive."""


@dataclass(frozen=True, slots=True)
class ImageCell:
    """Indices of neighboring tokens of a sample, and the one nearest to the middle."""

    members: list[int]
    center: int


def cut_into_cells(view: View, counts: Sequence[int]) -> list[list[ImageCell]]:
    """Cut all images of each sample into `counts` cells, of nearly equal size and nearly square.

    A view, tile or frame counts as an image. Cells are divided among images in proportion to their
    tokens, rounded along the sequence. A cell is a rectangle, or a run of tokens in raster order
    where tokens do not fill a rectangle. Tokens without a grid location are used only if cells are
    missing.
    """
    locations = torch.stack([view.medium, view.frame, view.row, view.column], dim=-1)
    return [
        _cut_sample(locations[sample, mask].tolist(), counts[sample])
        for sample, mask in enumerate(view.mask)
    ]


def _cut_sample(locations: list[list[int]], count: int) -> list[ImageCell]:
    images: dict[tuple[int, int], list[_Placed]] = {}
    unlocated = []
    for token, (medium, frame, row, column) in enumerate(locations):
        if row < 0:
            unlocated.append(token)
        else:
            images.setdefault((medium, frame), []).append((row, column, token))
    sizes = [len(image) for image in images.values()]
    rest = max(0, count - sum(sizes))
    counts = _allocate(sizes, count - rest)
    cells = [
        cell
        for image, number in zip(images.values(), counts, strict=True)
        for cell in _cut_image(image, number)
    ]
    return cells + _cut_runs(unlocated, rest)


def _allocate(sizes: Sequence[int], count: int) -> list[int]:
    """Divide a count in proportion to sizes, at most up to each size."""
    total, edges, end = sum(sizes), [0], 0
    for size in sizes:
        end += size
        edges.append((2 * end * count + total) // (2 * total))
    return [end - begin for begin, end in pairwise(edges)]


def _cut_image(image: list[_Placed], count: int) -> list[ImageCell]:
    table = {(row, column): token for row, column, token in image}
    top, left = min(row for row, _ in table), min(column for _, column in table)
    rows = max(row for row, _ in table) - top + 1
    columns = max(column for _, column in table) - left + 1
    if not len(table) == len(image) == rows * columns:
        return _cut_runs([token for _, _, token in sorted(image)], count)
    cells = []
    for first, last, begin, end in cut_rectangles(rows, columns, count):
        members = [
            table[top + row, left + column]
            for row in range(first, last)
            for column in range(begin, end)
        ]
        middle = table[top + (first + last - 1) // 2, left + (begin + end - 1) // 2]
        cells.append(ImageCell(members, middle))
    return cells


def _cut_runs(tokens: Sequence[int], count: int) -> list[ImageCell]:
    """Cut a list of tokens into runs of nearly equal length."""
    edges = [number * len(tokens) // count for number in range(count + 1)] if count else []
    return [
        ImageCell(list(tokens[begin:end]), tokens[(begin + end - 1) // 2])
        for begin, end in pairwise(edges)
    ]


@lru_cache(maxsize=256)
def cut_rectangles(rows: int, columns: int, count: int) -> tuple[_Rectangle, ...]:
    """Cut a grid into `count` rectangles of nearly equal size, as square as possible.

    The grid is cut into bands of rows, and each band into cells. The number of bands minimizes the
    squared distances of tokens to the middle of their cells; the smallest of several.
    """
    if count == 0:
        return ()
    # No band may have more cells than there are columns.
    fewest, most = -(-count // columns), min(rows, count)
    number = min(
        range(fewest, most + 1),
        key=lambda bands: _measure_spread(_cut_bands(rows, count, bands), columns),
    )
    rectangles, top = [], 0
    for height, cells in _cut_bands(rows, count, number):
        edges = [cell * columns // cells for cell in range(cells + 1)]
        rectangles += [(top, top + height, *ends) for ends in pairwise(edges)]
        top += height
    return tuple(rectangles)


def _cut_bands(rows: int, count: int, bands: int) -> list[tuple[int, int]]:
    """Return height and number of cells of each band; heights are proportional to the cells."""
    heights, top, done = [], 0, 0
    for band in range(1, bands + 1):
        cells = band * count // bands - done
        done += cells
        bottom = max((2 * rows * done + count) // (2 * count), top + 1)
        heights.append((bottom - top, cells))
        top = bottom
    return heights


def _measure_spread(bands: Sequence[tuple[int, int]], columns: int) -> int:
    """Return 12 times the summed squared distances of all tokens to the middle of their cells."""
    total = 0
    for height, cells in bands:
        width, wider = divmod(columns, cells)
        for wide, number in ((width, cells - wider), (width + 1, wider)):
            total += number * height * wide * (height * height + wide * wide - 2)
    return total
