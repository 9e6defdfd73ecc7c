"""One forward pass: which positions are visual, which are words, and what is left of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tokencover.errors import InputError
from tokencover.runtime.layout import NEWLINE, Layout
from tokencover.runtime.sequence import Kept

if TYPE_CHECKING:
    from tokencover.runtime.encoder import Encodings
    from tokencover.runtime.recording import Recorded

PIXELS = ("pixel_values", "pixel_values_images", "pixel_values_videos")


@dataclass(slots=True, weakref_slot=True)
class ForwardPass:
    """What the runtime knows while a batch goes through the model.

    Attributes
    ----------
    real : Tensor
        ``(b, s)`` bool, which of the new tokens are not padding.
    past : Tensor or None
        ``(b, p)`` bool, the same for tokens of earlier passes, None if nothing is known of them.
    visual : Tensor or None
        ``(b, s)`` bool, None if this pass brings no picture.
    prompt : Tensor or None
        ``(b, s)`` bool, the prompt words.
    kept : dict
        For each pruning block that was reached, what is left; None if nothing was dropped there.
    masks : dict
        The attention mask of each group of blocks.
    columns : dict
        ``(b, cached + new)`` bool, which earlier and new tokens are real in each group of blocks.
    rotations : dict
        The rotation table of each group of blocks, where positions are numbered anew.
    recorded : dict
        What the probe recorded of each watched block, until the pass ends.
    encodings : Encodings or None
        What the vision tower computed, until the pass ends, if the method looks at it.
    sources : Tensor or None
        ``(b, s)`` int64, the place whose state each place holds, if a method moved states; -1 for
        a state that was none of them.
    seconds : float
        Time the method took so far.
    notes : dict
        What the method wrote down for its later places.
    """

    real: Tensor
    past: Tensor | None = None
    visual: Tensor | None = None
    prompt: Tensor | None = None
    places: Places | None = None
    kept: dict[int, Kept | None] = field(default_factory=dict)
    masks: dict[int, Any] = field(default_factory=dict)
    columns: dict[int, Tensor] = field(default_factory=dict)
    rotations: dict[int, Any] = field(default_factory=dict)
    recorded: dict[int, Recorded] = field(default_factory=dict)
    encodings: Encodings | None = None
    sources: Tensor | None = None
    seconds: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """Number of new tokens in a row."""
        return self.real.shape[1]

    def left_at(self, block: int) -> Kept | None:
        """What is left when this block begins; None if nothing was dropped before."""
        left = None
        for stage in sorted(self.kept):
            if stage <= block and self.kept[stage] is not None:
                left = self.kept[stage]
        return left


def tokens_of(arguments: Mapping[str, Any], cached: int) -> tuple[Tensor, Tensor | None]:
    """Which new tokens are real, and which earlier ones, from whatever mask the model was given.

    Parameters
    ----------
    arguments : Mapping
        Of the multimodal model's forward.
    cached : int
        Tokens in the cache before this pass.
    """
    input_ids = arguments["input_ids"]
    batch, length = input_ids.shape
    mask = arguments.get("attention_mask")
    if isinstance(mask, Mapping):
        mask = mask["full_attention"]
    if mask is None:
        return torch.ones(batch, length, dtype=torch.bool, device=input_ids.device), None
    if mask.dim() == 4:  # already a table of queries and keys: its last row sees all real tokens
        row = mask[:, 0, -1]
        mask = row if row.dtype == torch.bool else row >= 0
        mask = mask.expand(batch, -1)[:, : cached + length]
    mask = mask.bool()
    if mask.shape[1] < length:
        raise InputError(
            f"attention_mask has {mask.shape[1]} columns for {length} tokens: give every token one."
        )
    split = mask.shape[1] - length
    return mask[:, split:], mask[:, :split]


@dataclass(frozen=True, slots=True)
class Places:
    """Where the visual tokens of a batch lie in their pictures; all ``(b, s)`` int64, -1 elsewhere.

    Attributes
    ----------
    medium : Tensor
        Number of the image or video within its sample.
    kind, frame, row, column : Tensor
        See `tokencover.runtime.layout.Layout`.
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


def places_of(
    input_ids: Tensor, ids: list[int], images: list[Layout], videos: list[Layout]
) -> Places:
    """Assign the layouts, in order, to the visual tokens of the batch.

    Parameters
    ----------
    input_ids : Tensor
        ``(b, s)``.
    ids : list of int
        The image token id and, if the family has one, the video token id.
    images, videos : list of Layout
        One for each image and video of the batch, before rows were repeated for beam search.
    """
    table = torch.full((6, *input_ids.shape), -1, dtype=torch.int64)
    tokens = input_ids.cpu()
    for token, layouts, is_video in zip(ids, (images, videos), (0, 1), strict=False):
        _fill(table, tokens == token, layouts, is_video)
    _number_media(table[0])
    table = table.to(input_ids.device)
    return Places(table[0], table[1], table[2], table[3], table[4], table[5] == 1)


def _fill(table: Tensor, here: Tensor, layouts: list[Layout], is_video: int) -> None:
    count = int(here.sum())
    described = sum(map(len, layouts))
    if count == 0:
        return
    if described == 0 or count % described:
        raise InputError(
            f"the prompt has {count} visual tokens, the pictures make {described}: prepare both "
            "with the model's own processor, and do not truncate the prompt."
        )
    repeats = count // described  # beam search repeats every row
    row_of = here.nonzero()[:, 0]
    start = 0
    for layout in _in_order(layouts, row_of, repeats):
        places = here.nonzero()[start : start + len(layout)]
        start += len(layout)
        values = (layout.kind, layout.frame, layout.row, layout.column)
        table[0, places[:, 0], places[:, 1]] = 2 * start + is_video  # a mark for each medium
        for plane, value in enumerate(values, start=1):
            table[plane, places[:, 0], places[:, 1]] = value
        table[5, places[:, 0], places[:, 1]] = is_video


def _in_order(layouts: list[Layout], row_of: Tensor, repeats: int) -> list[Layout]:
    """Layouts in the order of the batch's rows, each row's repeated with its row."""
    if repeats == 1:
        return layouts
    ordered: list[Layout] = []
    group: list[Layout] = []
    start = 0
    for layout in layouts:
        end = start + len(layout) - 1
        if group and int(row_of[start]) != int(row_of[start - 1]):
            ordered += group * repeats
            start += sum(map(len, group)) * (repeats - 1)
            group = []
            end = start + len(layout) - 1
        group.append(layout)
        start = end + 1
    return ordered + group * repeats


def _number_media(medium: Tensor) -> None:
    """Number each row's media from 0, in the order of the sequence, in place."""
    for row in medium:
        seen: dict[int, int] = {}
        marks = row[row >= 0].tolist()
        for mark in marks:
            seen.setdefault(mark, len(seen))
        row[row >= 0] = torch.tensor([seen[mark] for mark in marks], dtype=torch.int64)
