"""HiRED (AAAI 2025): attention-guided token dropping for high-resolution models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tokencover.methods._shared.ranking import choose_best, choose_top
from tokencover.methods._shared.vision_tiles import (
    Crops,
    ImageCrops,
    VisionEncoderMethod,
    allocate,
    compute_cell_attention,
    group_images,
)
from tokencover.methods.base import Card, Choice, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class HiRED(VisionEncoderMethod):
    """Divide the budget between base view and tiles, then rank by the class token's attention.

    https://arxiv.org/abs/2408.10945. The base view gets the fraction `alpha`. Its ``1 - alpha``
    best tokens by the first block's attention divide the rest: each tile gets a number proportional
    to those in its region of the base view.

    Differences from the released code: remainders go to the largest fractions, and what a tile
    cannot hold goes to others, to keep exactly K; several images divide K by their number of crops;
    padding is never chosen. Without a class token scores are the mean attention received, and where
    the model merges patches into one token, the mean over its patches.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep: a count, or a fraction of all. For `budget_mode` and
        `positions` see `BudgetedMethod`.
    alpha : float
        Fraction of the base view, in [0, 1].
    partition : "spatial" or "bands"
        Whether a tile's region of the base view is where the tile is located, as in the paper, or a
        run of tokens in raster order, as in the released code.
    """

    name: ClassVar[str] = "hired"
    card: ClassVar[Card] = Card(
        title="HiRED",
        year=2024,
        objective="visual",
        pruning_point="before the decoder",
        signal="class token's attention; that of the first block divides K among tiles",
        paper="2408.10945",
        needs=("vision attention",),
        departs=(
            "remainders are allocated and padding is not chosen, so K is exact; regions are the "
            'locations of tiles (`partition="bands"`: as its code)'
        ),
    )

    drops_newlines = True
    setting_choices: ClassVar = {"partition": ("spatial", "bands")}
    setting_limits: ClassVar = {"alpha": (0, 1)}

    alpha: float = 0.5
    partition: Literal["spatial", "bands"] = "spatial"

    def watched_vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        """Return the first block and the one that outputs the visual tokens."""
        return sorted({0, feature_block})

    def choose(self, view: View) -> Choice:
        """Select the tokens with the highest scores of every crop."""
        encoded, crops = Crops.from_view(view, "HiRED")
        scores = compute_cell_attention(encoded, encoded.feature_block).sum(1)
        images = group_images(crops)
        budgets = self.num_kept(view)
        if any(crops.tile):
            first = compute_cell_attention(encoded, 0).sum(1)
            row, column = crops.row, crops.column
        capacities, counts = crops.capacities, [0] * len(crops.slot)
        for mine, budget in zip(images, budgets, strict=True):
            fits = [sum(capacities[crop] for crop in image.crops) for image in mine]
            weights = [len(image.crops) for image in mine]
            totals = allocate(min(budget, sum(fits)), weights, fits)
            for image, total in zip(mine, totals, strict=True):
                base = image.base
                if not image.tiles:
                    counts[base] = total
                    continue
                regions = self._compute_regions(image, row[base], column[base])
                divided = self._divide_budget(image, total, capacities, first[base], regions)
                for crop, count in zip(image.crops, divided, strict=True):
                    counts[crop] = count
        return crops.keep(choose_best(scores, crops.visible, counts), budgets, view)

    def _divide_budget(
        self,
        image: ImageCrops,
        total: int,
        capacities: Sequence[int],
        first: Tensor,
        regions: Tensor,
    ) -> list[int]:
        """Return the counts of the base view and of each tile of an image.

        `first` ``(cells,)`` are the first block's scores of the base view, `regions` ``(cells,)``
        int64 the tile of each of its cells.
        """
        fits = [capacities[tile] for tile in image.tiles]
        for_base = min(int(total * self.alpha), capacities[image.base])
        for_tiles = min(total - for_base, sum(fits))
        content = int(len(first) * (1 - self.alpha))
        tiles = regions[choose_top(first, content)]
        weights = [int((tiles == tile).sum()) for tile in range(len(fits))]
        return [total - for_tiles, *allocate(for_tiles, weights, fits)]

    def _compute_regions(self, image: ImageCrops, row: Tensor, column: Tensor) -> Tensor:
        """Return the tile of each cell of the base view, ``(cells,)`` int64, counted row by row."""
        if self.partition == "bands":
            cells = torch.arange(len(row), device=row.device)
            return cells * len(image.tiles) // len(row)
        down, across = image.grid
        rows, columns = int(row.max()) + 1, int(column.max()) + 1
        return row * down // rows * across + column * across // columns
