"""Crops of the vision encoder: their attention, their visual tokens, and dividing a budget.

A crop is one input of the vision encoder: an image, a base view, a tile or a frame. A cell is a
token of a crop that is no class token: a patch, or several patches merged into one visual token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import torch
from torch import Tensor

from tokencover.errors import InputError
from tokencover.methods.base import BeforeDecoder, Choice, View, VisionOutputs

MAP_SIZE = 2**22
"""Entries of an attention map that are computed at a time."""


class VisionEncoderMethod(BeforeDecoder):
    """A method that prunes before the decoder and reads what the vision encoder computed."""

    reads_prompt = False

    def watched_vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        """Return the block that outputs the visual tokens."""
        return (feature_block,)


def compute_cell_attention(encoded: VisionOutputs, block: int) -> Tensor:
    """Compute the class token's attention to each cell in a block, ``(c, heads, cells)`` float32.

    Without class tokens it is the mean attention received from the crop. A cell of several patches
    has their mean.
    """
    queries, keys = encoded.queries(block), encoded.keys(block)
    segments = encoded.segments(block)
    rows = compute_patch_attention(queries, keys, encoded.scaling, encoded.classes, segments)
    return encoded.fold(rows)


def compute_patch_attention(
    queries: Tensor, keys: Tensor, scaling: float, classes: int, segments: Tensor | None = None
) -> Tensor:
    """Compute `compute_cell_attention` for patches, from ``(c, heads, p, head_dim)``.

    `scaling`, `classes` and `segments` are those of `VisionOutputs`.
    """
    if classes > 0:
        logits = compute_class_logits(queries, keys, scaling)
        if segments is not None:
            apart = segments != segments[:, :1]
            logits = logits.masked_fill(apart.unsqueeze(1), -torch.inf)
        return logits.softmax(-1)[..., classes:]
    rows = torch.zeros(keys.shape[:-1], device=keys.device)
    for crop in range(len(keys)):
        segment = None if segments is None else segments[crop]
        rows[crop] = _average_received(queries[crop].float(), keys[crop].float() * scaling, segment)
    return rows


def _average_received(queries: Tensor, keys: Tensor, segments: Tensor | None) -> Tensor:
    """Mean over all queries of a crop, ``(heads, p, head_dim)`` to ``(heads, p)``.

    A few rows at a time: the whole map of a large image would be the largest tensor of the model.
    """
    heads, count, _ = keys.shape
    here = torch.arange(count, device=keys.device)
    here = here if segments is None else here[segments >= 0]
    received = torch.zeros(heads, len(here), device=keys.device)
    for some in here.split(max(1, MAP_SIZE // (heads * max(1, count)))):
        logits = queries[:, some] @ keys[:, here].transpose(-1, -2)
        if segments is not None:
            apart = segments[some].unsqueeze(-1) != segments[here]
            logits = logits.masked_fill(apart, -torch.inf)
        received += logits.softmax(-1).sum(-2)
    rows = torch.zeros(heads, count, device=keys.device)
    rows[:, here] = received / max(1, len(here))
    return rows


def compute_class_logits(queries: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """Compute the products of the first query with all keys, ``(c, heads, p)`` float32."""
    first = queries[:, :, :1].float()
    return (first @ keys.float().transpose(-1, -2)).squeeze(-2) * scaling


def allocate(
    total: int, weights: Sequence[int | float | Fraction], capacities: Sequence[int]
) -> list[int]:
    """Divide `total` in proportion to weights, exactly, at most up to the capacities.

    Remainders go to the largest fractions, the first of equal ones. What does not fit is divided
    among the others; if those have no weight, evenly.
    """
    if not 0 <= total <= sum(capacities):
        raise InputError(f"{total} tokens do not fit into {sum(capacities)} slots.")
    counts = [0] * len(capacities)
    parts = _compute_whole_parts(weights)
    open_ = [crop for crop, capacity in enumerate(capacities) if capacity > 0]
    rest = total
    while rest > 0:
        whole = sum(parts[crop] for crop in open_)
        if whole == 0:
            parts, whole = [1] * len(parts), len(open_)
        full = [crop for crop in open_ if rest * parts[crop] >= capacities[crop] * whole]
        if not full:
            return _round_to_total(counts, rest, {crop: parts[crop] for crop in open_}, whole)
        for crop in full:
            counts[crop] = capacities[crop]
            rest -= capacities[crop]
        open_ = [crop for crop in open_ if crop not in full]
    return counts


def _compute_whole_parts(weights: Sequence[int | float | Fraction]) -> list[int]:
    """Return integers in the same proportion."""
    ratios = [weight.as_integer_ratio() for weight in weights]
    common = math.lcm(*(below for _, below in ratios))
    return [above * (common // below) for above, below in ratios]


def _round_to_total(counts: list[int], rest: int, parts: dict[int, int], whole: int) -> list[int]:
    """Divide `rest` in proportion to the parts, whose sum is `whole`."""
    exact = {crop: divmod(rest * part, whole) for crop, part in parts.items()}
    for crop, (floor, _) in exact.items():
        counts[crop] = floor
    by_remainder = sorted(exact, key=lambda crop: (-exact[crop][1], crop))
    for crop in by_remainder[: rest - sum(floor for floor, _ in exact.values())]:
        counts[crop] += 1
    return counts


@dataclass(frozen=True)
class Crops:
    """The visual token that each cell of each crop became.

    `slot` ``(c, cells)`` and `class_slot` ``(c,)`` are indices among the visual tokens of the
    crop's sample, -1 for removed cells such as padding. `members` are the crops of each sample in
    sequence order; `some_token` is a visual token of each crop, counted over all samples, -1
    outside the view.
    """

    slot: Tensor
    class_slot: Tensor
    members: list[list[int]]
    some_token: list[int]
    view: View

    @classmethod
    def from_view(cls, view: View, method: str) -> tuple[VisionOutputs, Crops]:
        """Return the vision encoder's outputs and crops, or raise if tokens are not mapped."""
        encoded = view.vision
        if encoded is None:
            raise InputError(
                f"{method} reads the attention of the vision encoder, but the view has none: use "
                "tc.prune on a model whose visual tokens correspond to patches of its vision "
                "encoder."
            )
        count, length, _ = encoded.features.shape
        device = encoded.features.device
        index = encoded.index
        from_encoder = (index >= 0) & view.mask
        tokens = torch.arange(index.numel(), device=device)  # counted over all samples
        cells, rows = index.flatten(), list(index // length)
        if not from_encoder.all():
            _check_all_tokens_mapped(from_encoder, view, method)
            tokens = from_encoder.flatten().nonzero().squeeze(-1)
            cells = cells.index_select(0, tokens)
            rows = [row[known] for row, known in zip(rows, from_encoder, strict=True)]
        token_of = index.new_full((count * length,), -1).index_copy_(0, cells, tokens)
        token_of = token_of.view(count, length)
        some_token: list[int] = token_of.amax(-1).tolist()
        size = index.shape[1]
        # Beams of one prompt share their crops, so every sample has a list.
        members = [list(dict.fromkeys(row.unique_consecutive().tolist())) for row in rows]
        slot = token_of if len(index) == 1 else torch.where(token_of < 0, -1, token_of % size)
        class_slot = slot[:, 0] if encoded.classes else torch.full_like(slot[:, 0], -1)
        return encoded, cls(slot[:, encoded.classes :], class_slot, members, some_token, view)

    @cached_property
    def medium(self) -> list[int]:
        """The image or video of its sample that each crop belongs to; -1 outside the view."""
        return self._read(self.view.medium)

    @cached_property
    def frame(self) -> list[int]:
        """The frame, or tile, of its image or video; -1 outside the view."""
        return self._read(self.view.frame)

    @cached_property
    def tile(self) -> list[bool]:
        """Whether each crop is a tile of an image."""
        encoded = self.view.vision
        if encoded is None or not encoded.tiles or max(self.frame, default=0) <= 0:
            return [False] * len(self.some_token)
        videos = self._read(self.view.video)
        return [frame > 0 and video <= 0 for frame, video in zip(self.frame, videos, strict=True)]

    def _read(self, plane: Tensor) -> list[int]:
        """Return the values of a plane ``(b, n)`` of the view for each crop."""
        where = torch.tensor([max(token, 0) for token in self.some_token], device=plane.device)
        values = plane.flatten().index_select(0, where).tolist()
        pairs = zip(values, self.some_token, strict=True)
        return [int(value) if token >= 0 else -1 for value, token in pairs]

    @cached_property
    def row(self) -> Tensor:
        """``(c, cells)`` int64, the row of each cell in its image; -1 without a token."""
        return self.look_up(self.view.row)

    @cached_property
    def column(self) -> Tensor:
        """``(c, cells)`` int64, the column of each cell in its image; -1 without a token."""
        return self.look_up(self.view.column)

    @cached_property
    def visible(self) -> Tensor:
        """``(c, cells)`` bool, the cells that are visual tokens."""
        return self.slot >= 0

    @cached_property
    def capacities(self) -> list[int]:
        """How many cells of each crop are visual tokens."""
        counts: list[int] = self.visible.sum(-1).tolist()
        return counts

    def look_up(self, plane: Tensor) -> Tensor:
        """Map a plane ``(b, n)`` of the view to ``(c, cells)``; -1 without a token."""
        values = plane.to(self.slot.device)
        if len(self.members) == 1:
            return torch.where(self.visible, values[0, self.slot.clamp(min=0)].long(), -1)
        cells = torch.full_like(self.slot, -1)
        for sample, crops in enumerate(self.members):
            slots = self.slot[crops]
            cells[crops] = torch.where(slots >= 0, values[sample, slots.clamp(min=0)].long(), -1)
        return cells

    def allocate_evenly(self, budgets: Sequence[int]) -> list[int]:
        """Return ``c`` equal counts per crop of a sample, at most up to its cells."""
        capacities, counts = self.capacities, [0] * len(self.slot)
        for crops, budget in zip(self.members, budgets, strict=True):
            fits = [capacities[crop] for crop in crops]
            allocated = allocate(min(budget, sum(fits)), [1] * len(fits), fits)
            for crop, count in zip(crops, allocated, strict=True):
                counts[crop] = count
        return counts

    def keep(self, chosen: Sequence[Tensor], budgets: Sequence[int], view: View) -> Choice:
        """Return the choice of these cells of each crop.

        If a sample has fewer cells than its budget, newline and class tokens fill it up.
        """
        kept, details = [], []
        for sample, (crops, budget) in enumerate(zip(self.members, budgets, strict=True)):
            parts = [self.slot[crop].index_select(0, chosen[crop]) for crop in crops]
            missing = budget - sum(map(len, parts))
            if missing > 0:
                parts.append(self.get_non_patch_tokens(sample, view)[:missing])
            kept.append(torch.cat(parts))
            details.append({"crop_budgets": [len(chosen[crop]) for crop in crops]})
        return Choice(kept, details=details)

    def get_non_patch_tokens(self, sample: int, view: View) -> Tensor:
        """Return the visual tokens of a sample that are no cells: newline and class tokens."""
        mask = view.mask[sample].to(self.slot.device).clone()
        slots = self.slot[self.members[sample]]
        mask[slots[slots >= 0]] = False
        return mask.nonzero().squeeze(-1)


def _check_all_tokens_mapped(from_encoder: Tensor, view: View, method: str) -> None:
    """Raise for tokens with a grid location that do not come from the vision encoder."""
    unmapped = view.mask & ~from_encoder & (view.row >= 0)
    bad = unmapped.any(-1) | ~from_encoder.any(-1)
    if bool(bad.any()):
        sample = int(bad.nonzero()[0])
        raise InputError(
            f"{method} reads the attention of the vision encoder, but visual tokens of sample "
            f"{sample} do not correspond to its patches: use a method that prunes in the decoder, "
            "for example tc.MoB."
        )


@dataclass(frozen=True, slots=True)
class ImageCrops:
    """The crops of one image: the base view, its tiles row by row, and rows and columns of tiles.

    Tiles that are only padding are omitted; a video frame is an image without tiles, grid (0, 0).
    """

    base: int
    tiles: tuple[int, ...]
    grid: tuple[int, int]

    @property
    def crops(self) -> tuple[int, ...]:
        """Base view first."""
        return (self.base, *self.tiles)


def group_images(crops: Crops) -> list[list[ImageCrops]]:
    """Return the images of each sample, in the order of the sequence."""
    if not any(crops.tile):
        return [[ImageCrops(crop, (), (0, 0)) for crop in mine] for mine in crops.members]
    # Tiles at the upper and the left edge of the stitched image.
    upper, left = ((plane == 0).any(-1).tolist() for plane in (crops.row, crops.column))
    return [_group_crops(mine, crops, upper, left) for mine in crops.members]


def _group_crops(
    mine: list[int], crops: Crops, upper: Sequence[bool], left: Sequence[bool]
) -> list[ImageCrops]:
    images = []
    for crop in mine:
        if not crops.tile[crop]:
            tiles = tuple(
                tile
                for tile in mine
                if crops.tile[tile] and crops.medium[tile] == crops.medium[crop]
            )
            grid = (sum(left[tile] for tile in tiles), sum(upper[tile] for tile in tiles))
            if grid[0] * grid[1] != len(tiles):
                raise InputError(
                    f"the {len(tiles)} tiles of an image do not form a grid: {grid[0]} are at its "
                    f"left edge and {grid[1]} at its upper edge. Use a method that prunes in the "
                    "decoder, for example tc.MoB."
                )
            images.append(ImageCrops(crop, tiles, grid))
    return images
