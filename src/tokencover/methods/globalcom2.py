"""GlobalCom2 (AAAI 2026): global compression commander for high-resolution models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.methods._shared.ranking import choose_best
from tokencover.methods._shared.vision_tiles import (
    Crops,
    ImageCrops,
    VisionEncoderMethod,
    allocate,
    compute_class_logits,
    group_images,
)
from tokencover.methods.base import Card, Choice, View, VisionOutputs
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class GlobalCom2(VisionEncoderMethod):
    """Divide the budget among tiles, and rank their tokens, with the help of the base view.

    https://arxiv.org/abs/2501.05179; only for images with tiles. Scores are products of the class
    token's query with the keys, before the softmax, mean over heads. The base view keeps the same
    fraction as the image; a tile's fraction grows with the softmax, at a temperature, of the base
    view's scores summed over the tile's region. A tile's tokens are ranked by their scores plus
    those of the base view there, both of unit length. Newline tokens stay and are not counted.

    Differences from the released code: exactly K tokens stay, where it rounds every number down;
    tokens keep their slots, where padding moves them; every image of a batch has its base view,
    whose tokens stay in raster order. Without a class token scores are those of the paper: minus
    the cosine of a token with the mean of its crop.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep, newline tokens apart. For `budget_mode` and `positions`
        see `BudgetedMethod`.
    temperature : float
        Above 0; larger values divide more evenly. 10 by default.
    """

    name: ClassVar[str] = "globalcom2"
    card: ClassVar[Card] = Card(
        title="GlobalCom2",
        year=2025,
        objective="visual",
        pruning_point="before the decoder",
        signal="class tokens' attention logits of base view and tiles",
        paper="2501.05179",
        needs=("vision attention", "tiles"),
        departs=("K is exact; kept tokens stay in their cells; each image has its own base view"),
    )

    temperature: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.temperature > 0:
            raise InputError(
                f"temperature must be above 0, got {self.temperature}; the paper uses 10."
            )

    def watched_vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        """Return the last block, even if visual tokens come from an earlier one."""
        return (num_blocks - 1,)

    def choose(self, view: View) -> Choice:
        """Select the tokens with the highest scores of base view and tiles."""
        encoded, crops = Crops.from_view(view, "GlobalCom2")
        local = score_cells(encoded, crops.visible)
        row, column = crops.row, crops.column
        budgets = self.num_kept(view)
        scores, counts = local.clone(), [0] * len(local)
        capacities = crops.capacities
        for sample, mine in enumerate(group_images(crops)):
            _check_has_tiles(mine, sample)
            fits = [sum(capacities[crop] for crop in image.crops) for image in mine]
            totals = allocate(min(budgets[sample], sum(fits)), fits, fits)
            for image, total in zip(mine, totals, strict=True):
                base, tiles = image.base, list(image.tiles)
                shown = _draw_map(local[base], row[base], column[base])
                ratios = weigh_tiles(shown, image.grid, self.temperature)
                divided = _divide_budget(image, total, capacities, ratios)
                for crop, count in zip(image.crops, divided, strict=True):
                    counts[crop] = count
                scores[tiles] = _score_tiles(local[tiles], shown, row[tiles], column[tiles])
        return crops.keep(choose_best(scores, crops.visible, counts), budgets, view)


def score_cells(encoded: VisionOutputs, visible: Tensor) -> Tensor:
    """Compute the class token's attention logits to each cell, ``(c, cells)`` float32.

    `visible` ``(c, cells)`` bool marks the cells that are visual tokens.
    """
    if encoded.classes == 0:
        features = encoded.features.float()
        there = torch.ones_like(visible) if encoded.passes_classes else visible
        counts = there.sum(1).clamp(min=1).view(-1, 1, 1)
        mean = (features * there.unsqueeze(-1)).sum(1, keepdim=True) / counts
        return -nn.functional.cosine_similarity(features, mean, dim=-1)
    last = encoded.num_blocks - 1
    logits = compute_class_logits(encoded.queries(last), encoded.keys(last), encoded.scaling)
    return logits.mean(1)[:, encoded.classes :]


def weigh_tiles(shown: Tensor, grid: tuple[int, int], temperature: float) -> list[float]:
    """Return the fraction of each tile to keep, relative to that of the image; the mean is 1.

    `shown` ``(rows, columns)`` are the scores of the base view; its remaining rows and columns
    belong to the last tiles of the grid.
    """
    bounds = [_cut_evenly(size, parts) for size, parts in zip(shown.shape, grid, strict=True)]
    sums = [
        shown[top:bottom, left:right].double().sum()
        for top, bottom in bounds[0]
        for left, right in bounds[1]
    ]
    weights = (torch.stack(sums) / temperature).softmax(0)
    ratios: list[float] = (1 + weights - weights.mean()).tolist()
    return ratios


def _cut_evenly(size: int, parts: int) -> list[tuple[int, int]]:
    step = max(size // parts, 1)
    starts = [part * step for part in range(parts)]
    return list(zip(starts, [*starts[1:], size], strict=True))


def _divide_budget(
    image: ImageCrops, total: int, capacities: Sequence[int], ratios: Sequence[float]
) -> list[int]:
    """Return the counts of the base view and of each tile."""
    fits = [capacities[tile] for tile in image.tiles]
    base = capacities[image.base]
    for_base = base * total // (base + sum(fits))
    weights = [fit * Fraction(ratio) for fit, ratio in zip(fits, ratios, strict=True)]
    return [for_base, *allocate(total - for_base, weights, fits)]


def _draw_map(scores: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Arrange cells ``(cells,)`` with grid locations as ``(rows, columns)``."""
    shown = scores.new_zeros(int(row.max()) + 1, int(column.max()) + 1)
    here = row >= 0
    shown[row[here], column[here]] = scores[here]
    return shown


def _score_tiles(local: Tensor, shown: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Add scores ``(tiles, cells)`` and those of the base view, both normalized over visible cells.

    `row` and `column` are locations in the stitched image, -1 without a token.
    """
    size = (int(row.max()) + 1, int(column.max()) + 1)
    enlarged = nn.functional.interpolate(
        shown[None, None], size=size, mode="bilinear", align_corners=False
    )[0, 0]
    visible = row >= 0
    parts = (local, enlarged[row.clamp(min=0), column.clamp(min=0)])
    own, shared = (nn.functional.normalize(part * visible, dim=-1) for part in parts)
    return own + shared


def _check_has_tiles(mine: Sequence[ImageCrops], sample: int) -> None:
    for number, image in enumerate(mine):
        if not image.tiles:
            raise InputError(
                f"GlobalCom2 divides a budget among tiles, but image {number} of sample {sample} "
                "has only one view: use it with models that cut images into tiles, such as "
                "LLaVA-Next, or use FasterVLM."
            )
