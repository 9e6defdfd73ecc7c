"""The tokens of a vision encoder, while some of them are merged.

What is merged is what becomes a visual token: a patch, or a square of patches that the model merges
spatially after its encoder. Merging single patches there would leave as many visual tokens as
before, because nearly every square would still differ. So a square's state is that of its patches
side by side; its key is the mean of theirs, as in VisionZip's code for Qwen; its attention is the
mean over queries and the sum over keys of its patches.

A row orders its tokens in two ways: by position, where tokens that attend to each other are
adjacent, and by method, set by set and crop by crop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from tokencover.errors import InputError
from tokencover.families import FoldedTiles, Layout
from tokencover.pruning.vision.vision_attention import bound_segments

if TYPE_CHECKING:
    from tokencover.pruning.vision.encoder import VisionEncoder


@dataclass(frozen=True, slots=True)
class Squares:
    """The squares of a crop.

    Tokens are class tokens, then patches square by square; units are class tokens and squares.
    `rows` and `columns` count squares, `patches` is per square.
    """

    rows: int
    columns: int
    patches: int
    classes: int

    @property
    def units(self) -> int:
        """Number of class tokens and squares."""
        return self.classes + self.rows * self.columns

    def count_tokens(self, units: int) -> int:
        """Number of tokens in that many units."""
        return self.classes + (units - self.classes) * self.patches

    def get_tokens(self, units: Tensor) -> Tensor:
        """Token indices ``(c, t)`` of the units ``(c, n)`` int64."""
        classes, squares = self._cut(units)
        first = (squares - self.classes) * self.patches + self.classes
        patches = first.unsqueeze(-1) + torch.arange(self.patches, device=units.device)
        return torch.cat([classes, patches.flatten(1)], dim=1)

    def repeat(self, values: Tensor) -> Tensor:
        """Values of units ``(c, n)``, repeated for the tokens of each."""
        classes, squares = self._cut(values)
        return torch.cat([classes, squares.repeat_interleave(self.patches, dim=1)], dim=1)

    def join(self, states: Tensor) -> Tensor:
        """From tokens ``(c, t, d)`` to units ``(c, n, w)``; class tokens repeat to that width."""
        if self.patches == 1:
            return states
        classes, patches = self._cut(states)
        wide = classes.repeat(1, 1, self.patches)
        return torch.cat([wide, patches.unflatten(1, (-1, self.patches)).flatten(2)], dim=1)

    def part(self, states: Tensor) -> Tensor:
        """Undo `join`."""
        if self.patches == 1:
            return states
        classes, squares = self._cut(states)
        width = states.shape[-1] // self.patches
        return torch.cat([classes[..., :width], squares.unflatten(2, (-1, width)).flatten(1, 2)], 1)

    def average_keys(self, keys: Tensor) -> Tensor:
        """From keys of tokens ``(c, heads, t, head_dim)`` to mean keys of units."""
        if self.patches == 1:
            return keys
        classes, patches = keys.split([self.classes, keys.shape[2] - self.classes], dim=2)
        return torch.cat([classes, patches.unflatten(2, (-1, self.patches)).mean(3)], dim=2)

    def fold_weights(self, weights: Tensor) -> Tensor:
        """From attention weights between tokens ``(c, t, t)`` to those between units."""
        if self.patches == 1:
            return weights
        classes, patches = weights.split([self.classes, weights.shape[2] - self.classes], dim=2)
        received = torch.cat([classes, patches.unflatten(2, (-1, self.patches)).sum(3)], dim=2)
        classes, patches = self._cut(received)
        return torch.cat([classes, patches.unflatten(1, (-1, self.patches)).mean(2)], dim=1)

    def _cut(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return tokens[:, : self.classes], tokens[:, self.classes :]


@dataclass(frozen=True, slots=True)
class CropSet:
    """Crops of one shape, which stay equally long.

    `places` ``(c, t)`` int64 holds the position of each token in the encoder's row before merging:
    class tokens, then patches square by square in raster order. `per_image` is the number of crops
    of each image.
    """

    squares: Squares
    places: Tensor
    per_image: tuple[int, ...]


def build_plain_set(
    grid: tuple[int, int], classes: int, crops: int, per_image: tuple[int, ...]
) -> list[CropSet]:
    """One set of crops whose patches, in raster order, are the visual tokens."""
    squares = Squares(*grid, patches=1, classes=classes)
    places = torch.arange(crops * squares.units).view(crops, -1)
    return [CropSet(squares, places, per_image)]


def build_folded_sets(crops: FoldedTiles, layouts: Sequence[Layout], packed: bool) -> list[CropSet]:
    """Sets of crops whose patches are merged spatially after the encoder.

    Packed encoders get one set per image. In others crops stay equally long, because they lie side
    by side.
    """
    if not packed:
        if len({each.shape for each in layouts}) != 1:
            raise InputError("The crops of one call differ in size. Encode them in separate calls.")
        frames = tuple(each.shape[0] for each in layouts)
        return [_take_crops(crops, layouts[0].shape, 0, frames)]
    found, first = [], 0
    for layout in layouts:
        found.append(_take_crops(crops, layout.shape, first, (layout.shape[0],)))
        first += layout.shape[0]
    return found


def _take_crops(
    crops: FoldedTiles, shape: tuple[int, int, int], first: int, per_image: tuple[int, ...]
) -> CropSet:
    """Consecutive crops, all with `shape` (crops, rows, columns) of cells."""
    _, rows, columns = shape
    own = slice(first, first + sum(per_image))
    classes = crops.class_index[own]
    cells = crops.index.view(crops.sources.shape)[own, : rows * columns]
    patches = int((cells[0, 0] >= 0).sum())
    places = torch.cat([classes, cells[..., :patches].flatten(1)], dim=1)
    return CropSet(Squares(rows, columns, patches, classes.shape[1]), places, per_image)


@dataclass(frozen=True, slots=True)
class Row:
    """The tokens that exist now, and the first tokens that each stands for.

    For each set, `groups` ``(c, units)`` int64 maps every first unit to the unit that stands for
    it, and `counts` is the number of units per crop. `positions` ``(m,)`` int64 locates each token,
    in the method's order, in the row.
    """

    sets: tuple[CropSet, ...]
    groups: tuple[Tensor, ...]
    counts: tuple[int, ...]
    places: Tensor

    def cut(self, values: Tensor) -> list[Tensor]:
        """Values ``(m, ...)`` of the row's tokens as ``(c, t, ...)`` per set."""
        return self.split(values[self.places.to(values.device)])

    def split(self, values: Tensor) -> list[Tensor]:
        """The same, for values in the method's order."""
        parts = values.split([len(each.places) * count for each, count in self._lengths()])
        return [
            part.unflatten(0, (len(each.places), -1))
            for part, each in zip(parts, self.sets, strict=True)
        ]

    def order(self, values: Sequence[Tensor]) -> Tensor:
        """Undo `cut`: from ``(c, t, ...)`` for each set to ``(m, ...)``."""
        flat = torch.cat([each.flatten(0, 1) for each in values])
        return flat[self.places.argsort().to(flat.device)]

    def merge(self, groups: Sequence[Tensor], counts: Sequence[int]) -> Row:
        """The row after its units joined new ones, `groups` ``(c, count)`` and `counts` per set."""
        members = tuple(
            new.to(old.device).gather(1, old) for new, old in zip(groups, self.groups, strict=True)
        )
        merged = replace(self, groups=members, counts=tuple(counts))
        total = sum(len(each.places) * count for each, count in merged._lengths())
        return replace(merged, places=torch.arange(total, device=self.places.device))

    def count_members(self) -> list[Tensor]:
        """Number of first units that each unit stands for, ``(c, count)`` int64 per set."""
        return [
            count_members(groups, count)
            for groups, count in zip(self.groups, self.counts, strict=True)
        ]

    def weigh_tokens(self) -> Tensor:
        """Number of first tokens that each token of the row stands for, ``(m,)`` int64."""
        sizes = self.count_members()
        return self.order(
            [each.squares.repeat(size) for each, size in zip(self.sets, sizes, strict=True)]
        )

    def compute_first_positions(self) -> Tensor:
        """Original position of each token's first member, ``(m,)`` int64, in the method's order."""
        homes = []
        for each, groups, count in zip(self.sets, self.groups, self.counts, strict=True):
            units = torch.arange(groups.shape[1], device=groups.device).expand_as(groups)
            unset = groups.new_full((len(groups), count), groups.shape[1])
            first = unset.scatter_reduce(1, groups, units, "amin")
            homes.append(each.places.gather(1, each.squares.get_tokens(first)).flatten())
        return torch.cat(homes)

    def compute_sources(self) -> Tensor:
        """Position in the row of what stands for each first token, ``(first tokens,)`` int64."""
        found = self.places.new_empty(sum(each.places.numel() for each in self.sets))
        start = 0
        for (each, tokens), groups in zip(self._lengths(), self.groups, strict=True):
            crops = torch.arange(len(groups), device=groups.device).unsqueeze(-1)
            own = start + crops * tokens + each.squares.get_tokens(groups)
            found[each.places.flatten()] = self.places[own.flatten()]
            start += len(groups) * tokens
        return found

    def spread(self, states: Tensor) -> Tensor:
        """Copy states ``(..., w)`` of the row to all first tokens that they stand for."""
        flat = states.flatten(0, -2)[self.compute_sources().to(states.device)]
        return reshape_like(flat, states)

    def average(self, values: Tensor) -> Tensor:
        """From values ``(first, w)`` of the first tokens to means over members, ``(m, w)``."""
        sources = self.compute_sources().to(values.device)
        # By segments: scattered sums depend on the order of threads.
        lengths = torch.bincount(sources, minlength=len(self.places))
        ordered = values[sources.argsort(stable=True)].float()
        means: Tensor = torch.segment_reduce(ordered, "mean", lengths=lengths, axis=0)
        return means.to(values.dtype)

    def number_segments(self, ends: Tensor) -> Tensor:
        """The segment of each token's first member, ``(m,)`` int64, in the method's order."""
        homes = self.compute_first_positions()
        return torch.searchsorted(ends[1:].to(homes), homes, right=True)

    def arrange(self, segments: Tensor) -> Row:
        """The row with the tokens of each segment side by side."""
        return replace(self, places=segments.argsort(stable=True).argsort())

    def _lengths(self) -> list[tuple[CropSet, int]]:
        """Each set, with the number of tokens in one of its crops."""
        return [
            (each, each.squares.count_tokens(count))
            for each, count in zip(self.sets, self.counts, strict=True)
        ]


def build_row(sets: Sequence[CropSet], device: torch.device) -> Row:
    """Build the row before any merging."""
    sets = [replace(each, places=each.places.to(device)) for each in sets]
    groups = tuple(
        torch.arange(each.squares.units, device=device).expand(len(each.places), -1)
        for each in sets
    )
    counts = tuple(each.squares.units for each in sets)
    places = torch.cat([each.places.flatten() for each in sets])
    return Row(tuple(sets), groups, counts, places)


def reshape_like(flat: Tensor, states: Tensor) -> Tensor:
    """From ``(m, d)`` to a packed row, or crops side by side, like `states`."""
    found: Tensor = flat.unflatten(0, (*states.shape[:-2], -1))
    return found


def count_members(groups: Tensor, count: int) -> Tensor:
    """Number of tokens ``(c, n)`` in each group, ``(c, count)`` int64."""
    return groups.new_zeros(len(groups), count).scatter_add(1, groups, torch.ones_like(groups))


# ---- one run of an encoder -------------------------------------------------------------------


@dataclass(slots=True)
class MergingRun:
    """One forward pass of a vision encoder.

    `first` is its row before merging, `row` the current one, `attended` that of the attention that
    ran last, `passed` the output row of each block. `bias` ``(m,)`` was added for token sizes;
    `checked` lists segment bounds that are known to lie within crops.
    """

    first: Row
    row: Row = field(init=False)
    attended: Row = field(init=False)
    passed: list[Row] = field(default_factory=list)
    arguments: dict[str, Any] = field(default_factory=dict)
    projections: dict[str, Tensor] = field(default_factory=dict)
    bias: Tensor | None = None
    checked: list[Tensor] = field(default_factory=list)
    seconds: float = 0.0
    complete: bool = False

    def __post_init__(self) -> None:
        self.row = self.attended = self.first

    def check_length(self, states: Tensor) -> None:
        """Raise if the encoder has another number of tokens than its images make."""
        found = states[..., 0].numel()
        if found != len(self.first.places):
            raise InputError(
                f"The images make {len(self.first.places)} tokens in the vision encoder, which got "
                f"{found}. Prepare them with the model's own processor."
            )

    def prepare(
        self, states: Tensor, kwargs: dict[str, Any], proportional: bool
    ) -> tuple[Tensor, dict[str, Any]]:
        """States and arguments of a block, for the tokens that exist now.

        Tokens attend to each other if their first members did. A token is rotated by the mean of
        its members' tables, as ToMe's author advises (its repository, issue 29).
        """
        ends = kwargs.get("cu_seqlens")
        if ends is not None and all(ends is not each for each in self.checked):
            bound_segments(self._number_crops(), ends.cpu().long())
            self.checked.append(ends)
        changed = dict(kwargs)
        if ends is not None and self.row is not self.first:
            segments = self.row.number_segments(ends)
            arranged = self.row.arrange(segments)
            flat = arranged.order(self.row.cut(states.flatten(0, -2)))
            states, self.row = reshape_like(flat, states), arranged
            changed |= _shorten_arguments(kwargs, arranged, segments)
        self.attended, self.projections, self.bias = self.row, {}, None
        self.arguments = {"rotation": changed.get("position_embeddings"), "ends": ends}
        if proportional and self.row.counts != self.first.counts:
            sizes = self.row.weigh_tokens().to(states.device)
            self.bias = sizes.float().log().to(states.dtype)
        return states, changed

    def finish_block(self, number: int, depth: int, output: Tensor) -> Tensor:
        """The output of a block; after the last one, spread over all first tokens."""
        self.passed.append(self.row)
        if number == depth - 1:
            output, self.row = self.spread(self.row, output), self.first
        return output

    def spread(self, row: Row, states: Tensor) -> Tensor:
        """Copy states of a row to all first tokens that they stand for."""
        return states if row is self.first else row.spread(states)

    def compute_keys(self, encoder: VisionEncoder, block: int, part: int) -> Tensor:
        """Keys ``(c, heads, n, head_dim)`` of the attention that ran last, for one set."""
        keys = self._compute_projected(encoder, block, "k", part)
        return self.row.sets[part].squares.average_keys(keys)

    def compute_attention(self, encoder: VisionEncoder, block: int, part: int) -> Tensor:
        """Its weights ``(c, n, n)`` float32, averaged over heads."""
        queries, keys = (self._compute_projected(encoder, block, name, part) for name in ("q", "k"))
        bias = None if self.bias is None else self.attended.cut(self.bias)[part]
        segments = None
        if self.arguments["ends"] is not None:
            numbers = self.attended.number_segments(self.arguments["ends"])
            segments = self.attended.split(numbers)[part].to(queries.device)
        scaling = encoder.get_attention(block).scaling
        weights = average_attention(queries, keys, scaling, bias, segments)
        return self.row.sets[part].squares.fold_weights(weights)

    def _compute_projected(
        self, encoder: VisionEncoder, block: int, name: str, part: int
    ) -> Tensor:
        if not self.projections:
            raise InputError(
                f"There are no keys before vision-encoder block {block + 1}, because no block has "
                "run. Merge before a later block, or by hidden states alone."
            )
        attention = encoder.get_attention(block)
        found = attention.compute_projected(self.projections, self.arguments["rotation"])[name]
        return self.attended.cut(found)[part].transpose(1, 2)

    def _number_crops(self) -> Tensor:
        """The crop of each first token, ``(first tokens,)`` int64 on the CPU."""
        numbers, start = torch.empty(len(self.first.places), dtype=torch.int64), 0
        for each in self.first.sets:
            crops = torch.arange(start, start + len(each.places)).unsqueeze(-1)
            numbers[each.places.cpu()] = crops.expand(each.places.shape)
            start += len(each.places)
        return numbers


def _shorten_arguments(kwargs: dict[str, Any], row: Row, segments: Tensor) -> dict[str, Any]:
    """Token-wise arguments of a block, for the tokens of a row in these segments."""
    ends = kwargs["cu_seqlens"]
    _, lengths = segments.unique(return_counts=True)
    changed: dict[str, Any] = {"cu_seqlens": functional.pad(lengths.cumsum(0), (1, 0)).to(ends)}
    if kwargs.get("max_seqlen") is not None:
        changed["max_seqlen"] = int(lengths.max())
    tables = kwargs.get("position_embeddings")
    if tables is not None:
        changed["position_embeddings"] = tuple(row.average(each) for each in tables)
    return changed


def average_attention(
    queries: Tensor,
    keys: Tensor,
    scaling: float,
    bias: Tensor | None,
    segments: Tensor | None = None,
) -> Tensor:
    """Attention weights ``(c, n, n)`` float32, averaged over heads.

    `queries` and `keys` are ``(c, heads, n, head_dim)``. `bias` ``(c, n)`` is added per key. Tokens
    attend to each other within `segments` ``(c, n)`` int64.
    """
    crops, heads, tokens, _ = queries.shape
    mean = torch.zeros(crops, tokens, tokens, device=queries.device)
    hidden = None if segments is None else segments.unsqueeze(1) != segments.unsqueeze(2)
    for head in range(heads):  # one map at a time: all of them are the largest tensor of a encoder
        products = queries[:, head].float() @ keys[:, head].float().transpose(1, 2) * scaling
        products = products if bias is None else products + bias.float().unsqueeze(1)
        products = products if hidden is None else products.masked_fill(hidden, -torch.inf)
        mean += products.softmax(-1)
    return mean / heads
