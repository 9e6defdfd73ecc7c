"""HiRED: attention-guided token dropping for high-resolution vision-language models (AAAI 2025).

Place: before the decoder. Signal: the class token's attention, in the first tower block to divide
the budget among tiles, in the one that makes the visual tokens to rank them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from tokencover.errors import InputError
from tokencover.methods._shared.ranking import choose_best
from tokencover.methods._shared.tower_crops import (
    Crops,
    Picture,
    ReadsTower,
    group_pictures,
    read_attention_rows,
    share_out,
)
from tokencover.methods.base import Card, Choice, View
from tokencover.methods.registry import register_method

Partition = Literal["spatial", "bands"]


@register_method
@dataclass(frozen=True)
class HiRED(ReadsTower):
    """Divide the budget between base view and tiles, then rank each by the class token's attention.

    arXiv 2408.10945. The base view gets the share `alpha`. Its ``1 - alpha`` best tokens by the
    first block's attention say how the rest is divided: each tile gets as much as its region of the
    base view has of them. A picture without tiles is ranked as it is.

    Where the released code differs: it rounds each tile's budget down, here the remainder goes to
    the largest fractions so that exactly K tokens stay, and what a tile cannot hold goes to the
    others; several pictures share K by their number of crops. Its regions are bands of rows rather
    than the places of the tiles (`partition`). It ranks the padding of tiles like any patch and
    then loses what falls on it, so that fewer are left; here padding is never chosen. For towers
    without a class token scores are the mean attention received, and where the model folds patches
    into one token the mean over its patches.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep. For `budget_mode` and `positions` see `BudgetedMethod`;
        the decoder gets a sequence without gaps.
    alpha : float
        Share of the base view, in [0, 1].
    partition : "spatial" or "bands"
        Whether a tile's region of the base view is where the tile lies, as the paper has it, or
        a run of tokens in raster order, as the released code has it.
    """

    name: ClassVar[str] = "hired"
    card: ClassVar[Card] = Card(
        title="HiRED",
        year=2024,
        objective="visual",
        pruning_point="before the decoder",
        signal="class token's attention in the tower; an early block divides K among tiles",
        paper="2408.10945",
        needs=("encoder",),
        departs=(
            "remainders are given out and padding is not chosen, so K is exact; regions are where "
            'tiles lie (`partition="bands"` is the code\'s)'
        ),
    )

    alpha: float = 0.5
    partition: Partition = "spatial"
    drops_newlines = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.alpha <= 1:
            raise InputError(f"alpha is a share in [0, 1], got {self.alpha!r}; the paper's is 0.5.")
        if self.partition not in get_args(Partition):
            raise InputError(f"partition must be 'spatial' or 'bands', got {self.partition!r}.")

    def watched_vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        """The first block, and the one that makes the visual tokens."""
        return sorted({0, feature_block})

    def choose(self, view: View) -> Choice:
        """The best of every crop, as many as its budget."""
        encoded, crops = Crops.from_view(view, "HiRED")
        scores = read_attention_rows(encoded, encoded.feature_block).sum(1)
        pictures = group_pictures(crops)
        budgets = self.num_kept(view)
        if any(crops.tile):
            first = read_attention_rows(encoded, 0).sum(1)
            row, column = crops.row, crops.column
        capacities, counts = crops.capacities, [0] * len(crops.slot)
        for mine, budget in zip(pictures, budgets, strict=True):
            fits = [sum(capacities[crop] for crop in picture.crops) for picture in mine]
            weights = [len(picture.crops) for picture in mine]
            totals = share_out(min(budget, sum(fits)), weights, fits)
            for picture, total in zip(mine, totals, strict=True):
                base = picture.base
                if not picture.tiles:
                    counts[base] = total
                    continue
                regions = self._find_regions(picture, row[base], column[base])
                given = self._divide_budget(picture, total, capacities, first[base], regions)
                for crop, count in zip(picture.crops, given, strict=True):
                    counts[crop] = count
        return crops.keep(choose_best(scores, crops.visible, counts), budgets, view)

    def _divide_budget(
        self,
        picture: Picture,
        total: int,
        capacities: Sequence[int],
        first: Tensor,
        regions: Tensor,
    ) -> list[int]:
        """How many tokens of the base view, and of each tile.

        Parameters
        ----------
        picture : Picture
            Its crops.
        total : int
            Budget of the picture.
        capacities : sequence of int
            Visual tokens of every crop.
        first : Tensor
            ``(cells,)``, the first block's scores of the base view.
        regions : Tensor
            ``(cells,)`` int64, the tile to which each of its cells belongs.
        """
        fits = [capacities[tile] for tile in picture.tiles]
        for_base = min(int(total * self.alpha), capacities[picture.base])
        for_tiles = min(total - for_base, sum(fits))
        content = int(len(first) * (1 - self.alpha))
        (salient,) = choose_best(
            first[None], torch.ones_like(first[None], dtype=torch.bool), [content]
        )
        found = regions[salient]
        weights = [int((found == tile).sum()) for tile in range(len(fits))]
        return [total - for_tiles, *share_out(for_tiles, weights, fits)]

    def _find_regions(self, picture: Picture, row: Tensor, column: Tensor) -> Tensor:
        """The tile, counted row by row, of each cell of the base view, ``(cells,)`` int64."""
        if self.partition == "bands":
            cells = torch.arange(len(row), device=row.device)
            return cells * len(picture.tiles) // len(row)
        down, across = picture.grid
        rows, columns = int(row.max()) + 1, int(column.max()) + 1
        return row * down // rows * across + column * across // columns
