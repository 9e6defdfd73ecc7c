"""Where each visual token lies in its picture, read from what the encoder was called with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tokencover.errors import InputError

PATCH, NEWLINE, CLASS = 0, 1, 2
"""Kinds of visual tokens: a piece of the picture, the end of a row of tiles, a class token."""
CLASS_TOKENS = {"clip_vision_model": 1, "siglip_vision_model": 0, "pixtral": 0, "dinov2": 1}
"""The vision towers whose tokens are known, and how many class tokens they begin with."""


@dataclass(frozen=True, slots=True)
class Media:
    """The pictures and videos of one forward pass, as the model's encoder was called for them.

    Attributes
    ----------
    config : Any
        The model's configuration.
    images, videos : Mapping or None
        The arguments of ``get_image_features`` and ``get_video_features``: pixels, grids, sizes.
        None if there was no such call.
    call : Mapping or None
        Those arguments of the multimodal model itself that the family asked for.
    """

    config: Any
    images: Mapping[str, Any] | None = None
    videos: Mapping[str, Any] | None = None
    call: Mapping[str, Any] | None = None


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

    @property
    def newline(self) -> Tensor:
        """Which tokens only end a row of tiles."""
        return self.kind == NEWLINE


@dataclass(frozen=True, slots=True)
class Places:
    """Where the visual tokens of a batch lie in their pictures; all ``(b, s)`` int64, -1 elsewhere.

    Attributes
    ----------
    medium : Tensor
        Number of the image or video within its sample.
    kind, frame, row, column : Tensor
        See `tokencover.families.layout.Layout`.
    video : Tensor
        bool.
    """

    medium: Tensor
    kind: Tensor
    frame: Tensor
    row: Tensor
    column: Tensor
    video: Tensor

    @property
    def newline(self) -> Tensor:
        """Which visual tokens only end a row of tiles."""
        return self.kind == NEWLINE


def lay_in_lines(visual: Tensor) -> Places:
    """Places of tokens of which nothing is known: each run of them is an image of one row.

    Parameters
    ----------
    visual : Tensor
        ``(b, s)`` bool.
    """
    nowhere = torch.full(visual.shape, -1, dtype=torch.int64, device=visual.device)
    begins = visual & ~torch.nn.functional.pad(visual, (1, 0))[:, :-1]
    places = torch.arange(visual.shape[1], device=visual.device).expand_as(nowhere)
    start = places.where(begins, 0).cummax(-1).values
    zeros = torch.where(visual, 0, nowhere)
    return Places(
        medium=torch.where(visual, begins.cumsum(-1) - 1, nowhere),
        kind=zeros + PATCH * visual,
        frame=zeros,
        row=zeros,
        column=torch.where(visual, places - start, nowhere),
        video=torch.zeros_like(visual),
    )


# ---- layouts that families share ------------------------------------------------------------


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
    return _mark(placed, place < 0, CLASS)


def grid_with_newlines(rows: int, columns: int) -> Layout:
    """One view in raster order; a newline token ends each of its rows."""
    wide = grid(1, rows, columns + 1)
    return _mark(replace(wide, shape=(1, rows, columns)), wide.column == columns, NEWLINE)


def add_newline(layout: Layout) -> Layout:
    """The same tokens and one newline token after all of them."""
    nowhere = layout.kind.new_full((1,), -1)
    return replace(
        layout,
        kind=torch.cat([layout.kind, torch.full_like(nowhere, NEWLINE)]),
        frame=torch.cat([layout.frame, nowhere]),
        row=torch.cat([layout.row, nowhere]),
        column=torch.cat([layout.column, nowhere]),
    )


def drop_first(layout: Layout) -> Layout:
    """The same tokens but the first."""
    return keep_tokens(layout, slice(1, None))


def keep_tokens(layout: Layout, where: Tensor | slice) -> Layout:
    """Some of the tokens, each where it was; `shape` stays that of the whole."""
    return replace(
        layout,
        kind=layout.kind[where],
        frame=layout.frame[where],
        row=layout.row[where],
        column=layout.column[where],
    )


def join_views(*parts: Layout) -> Layout:
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


def _mark(layout: Layout, where: Tensor, kind: int) -> Layout:
    """Make the chosen tokens of this kind; they lose row and column but stay in their frame."""
    return replace(
        layout,
        kind=layout.kind.masked_fill(where, kind),
        row=layout.row.masked_fill(where, -1),
        column=layout.column.masked_fill(where, -1),
    )


# ---- reading what the encoder was called with -----------------------------------------------


def require(arguments: Mapping[str, Any], *names: str) -> Any:
    """Give the first of these arguments that was passed; the names are of one and the same."""
    for name in names:
        if arguments.get(name) is not None:
            return arguments[name]
    given = ", ".join(sorted(name for name, value in arguments.items() if value is not None))
    raise InputError(
        f"the model was called without {names[0]} (only with: {given or 'nothing'}), so the grid "
        f"of its visual tokens is unknown; pass all that the processor returns, {names[0]} too"
    )


def read_pixels(arguments: Mapping[str, Any], axes: str, *names: str) -> Tensor:
    """Give the pixels, checked to have these axes.

    Parameters
    ----------
    axes : str
        Names of the axes, split by spaces, as in ``"images channels height width"``.
    """
    values: Tensor = require(arguments, *names)
    if values.ndim != len(axes.split()):
        raise InputError(
            f"{names[0]} has shape {tuple(values.shape)}, but this family takes ({axes}); "
            f"pass them as the processor returns them"
        )
    return values


def read_rows(values: Any) -> list[list[int]]:
    """Read sizes or grids from a tensor, an array or nested sequences."""
    if isinstance(values, Tensor):  # one copy from the device instead of one a number
        values = values.tolist()
    return [[int(number) for number in row] for row in values]


def read_setting(media: Media, arguments: Mapping[str, Any], name: str) -> Any:
    """Give what the call says, else what the configuration says, as the models do."""
    value = arguments.get(name)
    return value if value is not None else getattr(media.config, name, None)


def count_patches(media: Media, height: int, width: int) -> tuple[int, int]:
    """Rows and columns of the patches that the vision tower cuts from a picture."""
    size: int | Sequence[int] = media.config.vision_config.patch_size
    patch_height, patch_width = (size, size) if isinstance(size, int) else size
    return height // patch_height, width // patch_width


def require_square(rows: int, columns: int) -> int:
    """The side of a square of patches; models that fold patches know no other shape."""
    if rows != columns:
        raise InputError(
            f"a crop has {rows} x {columns} patches, but this model folds square crops only; "
            f"let its processor cut the picture into square crops"
        )
    return rows
