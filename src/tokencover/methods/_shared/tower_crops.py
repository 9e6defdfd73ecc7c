"""The crops of a vision tower: what they attend to, and which visual tokens that is about.

Methods that act before the decoder rank tokens by the attention of the tower's class token. Here
are those rows, the way from cells of a crop to visual tokens, the crops of one picture (a base view
and its tiles), and the sharing of one budget among crops. A cell is a token of a crop that is no
class token: a patch, or several patches that the model folds into one visual token.
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
"""Numbers of an attention map that are computed at a time."""


class ReadsTower(BeforeDecoder):
    """A method that ranks tokens before the decoder by what the vision tower computed."""

    reads_prompt = False

    def watched_vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        """The block that makes the visual tokens."""
        return (feature_block,)


def read_attention_rows(encoded: VisionOutputs, block: int) -> Tensor:
    """What the class token of each crop attends to in a tower block, head by head.

    Returns
    -------
    Tensor
        ``(c, heads, cells)`` float32. Of a tower without class tokens, the mean attention that each
        cell receives from all of its crop. Where a cell is several patches, the mean over those.
    """
    queries, keys = encoded.queries(block), encoded.keys(block)
    segments = encoded.segments(block)
    rows = compute_attention_rows(queries, keys, encoded.scaling, encoded.classes, segments)
    return encoded.fold(rows)


def compute_attention_rows(
    queries: Tensor, keys: Tensor, scaling: float, classes: int, segments: Tensor | None = None
) -> Tensor:
    """`read_attention_rows` for patches, from queries and keys ``(c, heads, p, head_dim)``.

    Parameters
    ----------
    scaling, classes, segments
        See `VisionOutputs`.
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

    A whole map of a large picture would be the largest tensor of the tower, so there are only a few
    of its rows at a time.
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
    """Products of the first query with all keys, ``(c, heads, p)`` float32."""
    first = queries[:, :, :1].float()
    return (first @ keys.float().transpose(-1, -2)).squeeze(-2) * scaling


def share_out(
    total: int, weights: Sequence[int | float | Fraction], capacities: Sequence[int]
) -> list[int]:
    """Divide `total` in proportion to weights, exactly, giving no place more than fits.

    What is left after rounding down goes to the largest fractions, the first of equal ones. What
    does not fit is divided again among the others; if none of those has weight, evenly.
    """
    if not 0 <= total <= sum(capacities):
        raise InputError(f"{total} tokens cannot be shared among places for {sum(capacities)}.")
    given = [0] * len(capacities)
    parts = _find_whole_parts(weights)
    open_ = [place for place, capacity in enumerate(capacities) if capacity > 0]
    left = total
    while left > 0:
        whole = sum(parts[place] for place in open_)
        if whole == 0:
            parts, whole = [1] * len(parts), len(open_)
        full = [place for place in open_ if left * parts[place] >= capacities[place] * whole]
        if not full:
            return _round_to_total(given, left, {place: parts[place] for place in open_}, whole)
        for place in full:
            given[place] = capacities[place]
            left -= capacities[place]
        open_ = [place for place in open_ if place not in full]
    return given


def _find_whole_parts(weights: Sequence[int | float | Fraction]) -> list[int]:
    """Whole numbers in the same proportion."""
    ratios = [weight.as_integer_ratio() for weight in weights]
    common = math.lcm(*(below for _, below in ratios))
    return [above * (common // below) for above, below in ratios]


def _round_to_total(given: list[int], left: int, parts: dict[int, int], whole: int) -> list[int]:
    """Divide what is left in proportion to the parts; `whole` is their sum."""
    shares = {place: divmod(left * part, whole) for place, part in parts.items()}
    for place, (floor, _) in shares.items():
        given[place] = floor
    by_fraction = sorted(shares, key=lambda place: (-shares[place][1], place))
    for place in by_fraction[: left - sum(floor for floor, _ in shares.values())]:
        given[place] += 1
    return given


@dataclass(frozen=True)
class Crops:
    """Which visual token of which sample each cell of each crop became.

    Attributes
    ----------
    slot : Tensor
        ``(c, cells)`` int64, index among the visual tokens of the crop's sample; -1 for cells that
        the model has cut away, padding for instance.
    class_slot : Tensor
        ``(c,)`` int64, the same for the crop's first class token.
    members : list of list of int
        For each sample its crops, in the order in which they appear in the sequence.
    some_token : list of int
        A visual token of each crop, counted over all samples; -1 for crops that are not shown.
    view : View
        The visual tokens.
    """

    slot: Tensor
    class_slot: Tensor
    members: list[list[int]]
    some_token: list[int]
    view: View

    @classmethod
    def from_view(cls, view: View, method: str) -> tuple[VisionOutputs, Crops]:
        """What the tower computed, and its crops.

        Raises
        ------
        InputError
            If nothing is known of the tower, or visual tokens do not come from it one to one.
        """
        encoded = view.vision
        if encoded is None:
            raise InputError(
                f"{method} reads the attention of the vision tower, but the view has none: run it "
                "by tc.prune on a model whose visual tokens come from its tower one to one."
            )
        count, length, _ = encoded.features.shape
        device = encoded.features.device
        index = encoded.index
        from_tower = (index >= 0) & view.mask
        tokens = torch.arange(index.numel(), device=device)  # counted over all samples
        places, rows = index.flatten(), list(index // length)
        if not from_tower.all():
            _refuse_strangers(from_tower, view, method)
            tokens = from_tower.flatten().nonzero().squeeze(-1)
            places = places.index_select(0, tokens)
            rows = [row[seen] for row, seen in zip(rows, from_tower, strict=True)]
        known = index.new_full((count * length,), -1).index_copy_(0, places, tokens)
        known = known.view(count, length)
        some_token: list[int] = known.amax(-1).tolist()
        size = index.shape[1]
        # Beams of one prompt have their crops in common, so each sample is asked for its own.
        members = [list(dict.fromkeys(row.unique_consecutive().tolist())) for row in rows]
        slot = known if len(index) == 1 else torch.where(known < 0, -1, known % size)
        class_slot = slot[:, 0] if encoded.classes else torch.full_like(slot[:, 0], -1)
        return encoded, cls(slot[:, encoded.classes :], class_slot, members, some_token, view)

    @cached_property
    def medium(self) -> list[int]:
        """Which image or video of its sample each crop belongs to; -1 for one not shown."""
        return self._read(self.view.medium)

    @cached_property
    def frame(self) -> list[int]:
        """Which frame, or tile, of its medium each crop is; -1 for one not shown."""
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
        """What a plane of the view ``(b, n)`` says of each crop."""
        where = torch.tensor([max(token, 0) for token in self.some_token], device=plane.device)
        values = plane.flatten().index_select(0, where).tolist()
        pairs = zip(values, self.some_token, strict=True)
        return [int(value) if token >= 0 else -1 for value, token in pairs]

    @cached_property
    def row(self) -> Tensor:
        """``(c, cells)`` int64, the row of each cell in its picture; -1 where nothing is."""
        return self.look_up(self.view.row)

    @cached_property
    def column(self) -> Tensor:
        """``(c, cells)`` int64, the column of each cell in its picture; -1 where nothing is."""
        return self.look_up(self.view.column)

    @cached_property
    def visible(self) -> Tensor:
        """``(c, cells)`` bool, the cells that are visual tokens."""
        return self.slot >= 0

    @cached_property
    def capacities(self) -> list[int]:
        """How many cells of each crop are visual tokens."""
        found: list[int] = self.visible.sum(-1).tolist()
        return found

    def look_up(self, plane: Tensor) -> Tensor:
        """From a plane of the view ``(b, n)`` to cells ``(c, cells)``; -1 where nothing is."""
        values = plane.to(self.slot.device)
        if len(self.members) == 1:
            return torch.where(self.visible, values[0, self.slot.clamp(min=0)].long(), -1)
        found = torch.full_like(self.slot, -1)
        for sample, crops in enumerate(self.members):
            slots = self.slot[crops]
            found[crops] = torch.where(slots >= 0, values[sample, slots.clamp(min=0)].long(), -1)
        return found

    def share_evenly(self, budgets: Sequence[int]) -> list[int]:
        """The same number for every crop of a sample, as far as its cells go, ``c`` counts.

        What exceeds all cells of a sample is not given out.
        """
        capacities, counts = self.capacities, [0] * len(self.slot)
        for crops, budget in zip(self.members, budgets, strict=True):
            fits = [capacities[crop] for crop in crops]
            given = share_out(min(budget, sum(fits)), [1] * len(fits), fits)
            for crop, count in zip(crops, given, strict=True):
                counts[crop] = count
        return counts

    def keep(self, chosen: Sequence[Tensor], budgets: Sequence[int], view: View) -> Choice:
        """The visual tokens of chosen cells.

        Parameters
        ----------
        chosen : sequence of Tensor
            For each crop the cells to keep.
        budgets : sequence of int
            For each sample how many to keep in all. If it has fewer cells, its newline and class
            tokens make up the number.
        view : View
            The visual tokens.
        """
        kept, details = [], []
        for sample, (crops, budget) in enumerate(zip(self.members, budgets, strict=True)):
            parts = [self.slot[crop].index_select(0, chosen[crop]) for crop in crops]
            missing = budget - sum(map(len, parts))
            if missing > 0:
                parts.append(self.find_fillers(sample, view)[:missing])
            kept.append(torch.cat(parts))
            details.append({"crop_budgets": [len(chosen[crop]) for crop in crops]})
        return Choice(kept, details=details)

    def find_fillers(self, sample: int, view: View) -> Tensor:
        """The visual tokens of a sample that are no cells: newline and class tokens."""
        mask = view.mask[sample].to(self.slot.device).clone()
        slots = self.slot[self.members[sample]]
        mask[slots[slots >= 0]] = False
        return mask.nonzero().squeeze(-1)


def _refuse_strangers(from_tower: Tensor, view: View, method: str) -> None:
    """Refuse tokens that have a place in the picture but none in the tower."""
    strangers = view.mask & ~from_tower & (view.row >= 0)
    nothing = ~from_tower.any(-1)
    bad = strangers.any(-1) | nothing
    if bool(bad.any()):
        sample = int(bad.nonzero()[0])
        raise InputError(
            f"{method} reads the attention of the vision tower, but visual tokens of sample "
            f"{sample} do not come from it one to one: use a method that acts in the decoder, "
            "for example tc.MoB."
        )


@dataclass(frozen=True, slots=True)
class Picture:
    """The crops of one picture; a frame of a video is a picture without tiles.

    Attributes
    ----------
    base : int
        The crop that shows all of it.
    tiles : tuple of int
        The crops that show parts of it, row by row; those of which padding was all are not there.
    grid : tuple of int
        Rows and columns of tiles, (0, 0) if there are none.
    """

    base: int
    tiles: tuple[int, ...]
    grid: tuple[int, int]

    @property
    def crops(self) -> tuple[int, ...]:
        """Base view first."""
        return (self.base, *self.tiles)


def group_pictures(crops: Crops) -> list[list[Picture]]:
    """For each sample its pictures, in the order of the sequence."""
    if not any(crops.tile):
        return [[Picture(crop, (), (0, 0)) for crop in mine] for mine in crops.members]
    # Tiles along the upper and the left edge of the stitched view.
    upper, left = ((plane == 0).any(-1).tolist() for plane in (crops.row, crops.column))
    return [_group_crops(mine, crops, upper, left) for mine in crops.members]


def _group_crops(
    mine: list[int], crops: Crops, upper: Sequence[bool], left: Sequence[bool]
) -> list[Picture]:
    found = []
    for crop in mine:
        if not crops.tile[crop]:
            tiles = tuple(
                other
                for other in mine
                if crops.tile[other] and crops.medium[other] == crops.medium[crop]
            )
            grid = (sum(left[tile] for tile in tiles), sum(upper[tile] for tile in tiles))
            if grid[0] * grid[1] != len(tiles):
                raise InputError(
                    f"the {len(tiles)} tiles of a picture do not form a grid, but {grid[0]} lie at "
                    f"its left and {grid[1]} at its upper edge: use a method that acts in the "
                    "decoder, for example tc.MoB."
                )
            found.append(Picture(crop, tiles, grid))
    return found
