"""Where each visual token lies in its picture."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

PATCH, NEWLINE, CLASS = 0, 1, 2
"""Kinds of visual tokens: a piece of the picture, the end of a row of tiles, a class token."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One image or video: a place for each of its visual tokens, in the order of the sequence.

    Attributes
    ----------
    kind : Tensor
        ``(n,)`` int64, PATCH, NEWLINE or CLASS.
    frame, row, column : Tensor
        ``(n,)`` int64. For an image, `frame` counts views (the base view is 0, tiles together 1).
        -1 where a token has no place: newline and class tokens have neither row nor column, and a
        newline that closes a whole image or video has no frame either.
    shape : tuple of int
        (frames, rows, columns) of the first view.
    """

    kind: Tensor
    frame: Tensor
    row: Tensor
    column: Tensor
    shape: tuple[int, int, int]

    def __len__(self) -> int:
        return len(self.kind)


def grid(frames: int, rows: int, columns: int) -> Layout:
    """Tokens in raster order."""
    axes = [torch.arange(size) for size in (frames, rows, columns)]
    frame, row, column = (axis.flatten() for axis in torch.meshgrid(*axes, indexing="ij"))
    return Layout(torch.full_like(row, PATCH), frame, row, column, (frames, rows, columns))


def grid_with_classes(frames: int, rows: int, columns: int) -> Layout:
    """Frames in raster order, each after the class token of the vision tower."""
    flat = grid(frames, 1, rows * columns + 1)
    place = flat.column - 1
    row, column = place.div(columns, rounding_mode="floor"), place.remainder(columns)
    placed = replace(flat, row=row, column=column, shape=(frames, rows, columns))
    return _marked(placed, place < 0, CLASS)


def grid_with_newlines(rows: int, columns: int) -> Layout:
    """One view in raster order; a newline token ends each of its rows."""
    wide = grid(1, rows, columns + 1)
    return _marked(replace(wide, shape=(1, rows, columns)), wide.column == columns, NEWLINE)


def closed(layout: Layout) -> Layout:
    """The same tokens and one newline token after all of them."""
    nowhere = layout.kind.new_full((1,), -1)
    return replace(
        layout,
        kind=torch.cat([layout.kind, torch.full_like(nowhere, NEWLINE)]),
        frame=torch.cat([layout.frame, nowhere]),
        row=torch.cat([layout.row, nowhere]),
        column=torch.cat([layout.column, nowhere]),
    )


def without_first(layout: Layout) -> Layout:
    """The same tokens but the first."""
    return replace(
        layout,
        kind=layout.kind[1:],
        frame=layout.frame[1:],
        row=layout.row[1:],
        column=layout.column[1:],
    )


def views(*parts: Layout) -> Layout:
    """Several views of one picture, one after the other; `frame` counts on from view to view."""
    frames, seen = [], 0
    for part in parts:
        frames.append(torch.where(part.frame < 0, part.frame, part.frame + seen))
        seen += part.shape[0]
    return Layout(
        kind=torch.cat([part.kind for part in parts]),
        frame=torch.cat(frames),
        row=torch.cat([part.row for part in parts]),
        column=torch.cat([part.column for part in parts]),
        shape=parts[0].shape,
    )


def _marked(layout: Layout, where: Tensor, kind: int) -> Layout:
    """Make the chosen tokens of this kind; they lose row and column but stay in their frame."""
    return replace(
        layout,
        kind=layout.kind.masked_fill(where, kind),
        row=layout.row.masked_fill(where, -1),
        column=layout.column.masked_fill(where, -1),
    )
