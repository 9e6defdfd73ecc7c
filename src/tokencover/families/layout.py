"""The grid location of each visual token in its image, from the arguments of the image encoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tokencover.errors import InputError

PATCH, NEWLINE, CLASS = 0, 1, 2
"""Types of visual tokens: a part of the image, the end of a row of tiles, a class token."""


@dataclass(frozen=True, slots=True)
class Media:
    """The images and videos of one forward pass, as the model encoded them.

    Attributes
    ----------
    config : Any
        The model's configuration.
    images, videos : Mapping or None
        The arguments of ``get_image_features`` and ``get_video_features``: pixels, grids, sizes.
        None if there was no such call.
    call : Mapping or None
        Those arguments of the multimodal model itself that `Family.call_names` lists.
    """

    config: Any
    images: Mapping[str, Any] | None = None
    videos: Mapping[str, Any] | None = None
    call: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """One image or video: the location of each of its visual tokens, in sequence order.

    Attributes
    ----------
    kind : Tensor
        ``(n,)`` int64, PATCH, NEWLINE or CLASS.
    frame, row, column : Tensor
        ``(n,)`` int64. For an image, `frame` counts views: 0 is the base view, 1 all tiles
        together. -1 where a token has no location: newline and class tokens have neither row nor
        column, and a newline that closes a whole image or video has no frame either.
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
        """``(n,)`` bool, True for newline tokens."""
        return self.kind == NEWLINE


Layouts = tuple[list[Layout], list[Layout]]
"""Layouts of the images, and of the videos."""


@dataclass(frozen=True, slots=True)
class Places:
    """Grid locations of the visual tokens of a batch; all ``(b, s)`` int64, -1 for other tokens.

    `medium` is the index of the image or video within its sample, `video` is bool; for the other
    fields see `Layout`.
    """

    medium: Tensor
    kind: Tensor
    frame: Tensor
    row: Tensor
    column: Tensor
    video: Tensor

    @property
    def newline(self) -> Tensor:
        """``(b, s)`` bool, True for newline tokens."""
        return self.kind == NEWLINE


def build_fallback_layout(visual: Tensor) -> Places:
    """Treat each run of visual tokens ``(b, s)`` bool as an image of one row."""
    nowhere = torch.full(visual.shape, -1, dtype=torch.int64, device=visual.device)
    begins = visual & ~torch.nn.functional.pad(visual, (1, 0))[:, :-1]
    positions = torch.arange(visual.shape[1], device=visual.device).expand_as(nowhere)
    start = positions.where(begins, 0).cummax(-1).values
    zeros = torch.where(visual, 0, nowhere)
    return Places(
        medium=torch.where(visual, begins.cumsum(-1) - 1, nowhere),
        kind=zeros + PATCH * visual,
        frame=zeros,
        row=zeros,
        column=torch.where(visual, positions - start, nowhere),
        video=torch.zeros_like(visual),
    )


# ---- layouts that families share ------------------------------------------------------------


def grid(frames: int, rows: int, columns: int) -> Layout:
    """Tokens in raster order."""
    axes = [torch.arange(size) for size in (frames, rows, columns)]
    frame, row, column = (axis.flatten() for axis in torch.meshgrid(*axes, indexing="ij"))
    return Layout(torch.full_like(row, PATCH), frame, row, column, (frames, rows, columns))


def grid_with_classes(frames: int, rows: int, columns: int) -> Layout:
    """Frames in raster order, each after the class token of the vision encoder."""
    flat = grid(frames, 1, rows * columns + 1)
    number = flat.column - 1
    row, column = number.div(columns, rounding_mode="floor"), number.remainder(columns)
    located = replace(flat, row=row, column=column, shape=(frames, rows, columns))
    return _mark(located, number < 0, CLASS)


def grid_with_newlines(rows: int, columns: int) -> Layout:
    """One view in raster order; a newline token ends each row."""
    wide = grid(1, rows, columns + 1)
    return _mark(replace(wide, shape=(1, rows, columns)), wide.column == columns, NEWLINE)


def add_newline(layout: Layout) -> Layout:
    """Append one newline token without frame."""
    nowhere = torch.tensor([-1])
    newline = Layout(torch.tensor([NEWLINE]), nowhere, nowhere, nowhere, layout.shape)
    return _concatenate([layout, newline])


def keep_tokens(layout: Layout, where: Tensor | slice) -> Layout:
    """Select tokens; they keep their locations, and `shape` stays that of the whole image."""
    tokens: dict[str, Any] = {name: getattr(layout, name)[where] for name in _PER_TOKEN}
    return replace(layout, **tokens)


def join_views(*parts: Layout) -> Layout:
    """Concatenate views of one image; `frame` counts on from view to view."""
    views, num_frames = [], 0
    for part in parts:
        frame = torch.where(part.frame < 0, part.frame, part.frame + num_frames)
        views.append(replace(part, frame=frame))
        num_frames += part.shape[0]
    return _concatenate(views)


_PER_TOKEN = ("kind", "frame", "row", "column")
"""Fields of `Layout` with one entry per token."""


def _concatenate(parts: Sequence[Layout]) -> Layout:
    """All tokens in order; `shape` is that of the first part."""
    tokens: dict[str, Any] = {
        name: torch.cat([getattr(part, name) for part in parts]) for name in _PER_TOKEN
    }
    return replace(parts[0], **tokens)


def _mark(layout: Layout, where: Tensor, kind: int) -> Layout:
    """Set the type of some tokens; they lose row and column but keep their frame."""
    return replace(
        layout,
        kind=layout.kind.masked_fill(where, kind),
        row=layout.row.masked_fill(where, -1),
        column=layout.column.masked_fill(where, -1),
    )


def build_equal_grids(
    media: Media, axes: str, measure: Callable[[Media, int, int], tuple[int, int]]
) -> Layouts:
    """One grid per image or tile, where all have equal pixels and thus equal grids.

    ``measure(media, height, width)`` returns rows and columns.
    """
    if media.images is None:
        return [], []
    pixels = read_pixels(media.images, axes, "pixel_values")
    return [grid(1, *measure(media, *pixels.shape[-2:]))] * len(pixels), []


# ---- reading the arguments of the image encoder ---------------------------------------------


def require(arguments: Mapping[str, Any], *names: str) -> Any:
    """Get the first of these arguments that is given; all are names of the same one."""
    for name in names:
        if arguments.get(name) is not None:
            return arguments[name]
    given = ", ".join(sorted(name for name, value in arguments.items() if value is not None))
    raise InputError(
        f"the model was called without {names[0]} (only with: {given or 'nothing'}), so the grid "
        f"of its visual tokens is unknown; pass all outputs of the processor, {names[0]} too"
    )


def read_pixels(arguments: Mapping[str, Any], axes: str, *names: str) -> Tensor:
    """Get the pixels; `axes` are the expected axes, as in ``"images channels height width"``."""
    pixels: Tensor = require(arguments, *names)
    if pixels.ndim != len(axes.split()):
        raise InputError(
            f"{names[0]} has shape {tuple(pixels.shape)}, but this family takes ({axes}); "
            f"pass them as the processor returns them"
        )
    return pixels


def read_rows(values: Any) -> list[list[int]]:
    """Read sizes or grids from a tensor, an array or nested sequences."""
    if isinstance(values, Tensor):  # one copy from the device, not one per number
        values = values.tolist()
    return [[int(number) for number in row] for row in values]


def read_setting(media: Media, arguments: Mapping[str, Any], name: str) -> Any:
    """Get a setting from the call, else from the configuration, as the models do."""
    value = arguments.get(name)
    return value if value is not None else getattr(media.config, name, None)


def count_patches(media: Media, height: int, width: int) -> tuple[int, int]:
    """Rows and columns of the patches of an image in the vision encoder."""
    size: int | Sequence[int] = media.config.vision_config.patch_size
    patch_height, patch_width = (size, size) if isinstance(size, int) else size
    return height // patch_height, width // patch_width


def require_square(rows: int, columns: int) -> int:
    """The side of a square of patches; models that merge patches support no other shape."""
    if rows != columns:
        raise InputError(
            f"a tile has {rows} x {columns} patches, but this model supports square tiles only; "
            f"let its processor cut the image into square tiles"
        )
    return rows
