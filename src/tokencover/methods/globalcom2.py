"""GlobalCom2: global compression commander for high-resolution vision-language models (AAAI 2026).

Place: before the decoder. Signal: what the class tokens of the base view and of each tile look for
in the last tower block; the question is not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.methods._shared.ranking import choose_best
from tokencover.methods._shared.tower_crops import (
    Crops,
    Picture,
    ReadsTower,
    compute_class_logits,
    group_pictures,
    share_out,
)
from tokencover.methods.base import Card, Choice, View, VisionOutputs
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class GlobalCom2(ReadsTower):
    """Let the base view say how much of each tile to keep, and help to say what.

    arXiv 2501.05179; for pictures with tiles only. Scores are products of the class token's query
    with the keys, before the softmax, mean over heads. The base view keeps its share of the budget;
    a tile's ratio grows with the softmax, at a temperature, of the base view's scores summed over
    the tile's region. A tile's tokens are ranked by their own scores and those of the base view
    there, each of unit length. Newline tokens stay and are not counted.

    Where the released code differs: it rounds every number down and loses what a tile cannot hold,
    here exactly K tokens stay; with padding it puts kept tokens into wrong cells, and in a batch it
    takes the first picture's base view for all, here each token stays in its place and each picture
    has its own; kept tokens of the base view stay in raster order; only rows that the model did not
    cut away have newline tokens. For towers without a class token scores are those of the paper:
    how little a token resembles the mean of its crop.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep, newline tokens apart. For `budget_mode` and `positions`
        see `BudgetedMethod`; the decoder gets a sequence without gaps.
    temperature : float
        Above 0; how evenly tiles share.
    """

    name: ClassVar[str] = "globalcom2"
    card: ClassVar[Card] = Card(
        title="GlobalCom2",
        year=2025,
        objective="visual",
        pruning_point="before the decoder",
        signal="class tokens' attention logits of base view and tiles",
        paper="2501.05179",
        needs=("encoder", "tiles"),
        departs=("K is exact; kept tokens stay in their cells; each picture has its own base view"),
    )

    temperature: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.temperature > 0:
            raise InputError(
                f"temperature must be above 0, got {self.temperature}; the paper's is 10."
            )

    def watched_vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        """The tower's last block, though visual tokens may come from an earlier one."""
        return (num_blocks - 1,)

    def choose(self, view: View) -> Choice:
        """The best of base view and tiles, as many as their budgets."""
        encoded, crops = Crops.from_view(view, "GlobalCom2")
        local = score_cells(encoded, crops.visible)
        row, column = crops.row, crops.column
        budgets = self.num_kept(view)
        scores, counts = local.clone(), [0] * len(local)
        capacities = crops.capacities
        for sample, mine in enumerate(group_pictures(crops)):
            _refuse_without_tiles(mine, sample)
            fits = [sum(capacities[crop] for crop in picture.crops) for picture in mine]
            totals = share_out(min(budgets[sample], sum(fits)), fits, fits)
            for picture, total in zip(mine, totals, strict=True):
                base, tiles = picture.base, list(picture.tiles)
                shown = _draw_map(local[base], row[base], column[base])
                ratios = weigh_tiles(shown, picture.grid, self.temperature)
                given = _divide_budget(picture, total, capacities, ratios)
                for crop, count in zip(picture.crops, given, strict=True):
                    counts[crop] = count
                scores[tiles] = _score_tiles(local[tiles], shown, row[tiles], column[tiles])
        return crops.keep(choose_best(scores, crops.visible, counts), budgets, view)


def score_cells(encoded: VisionOutputs, visible: Tensor) -> Tensor:
    """What the class token of each crop looks for.

    Parameters
    ----------
    visible : Tensor
        ``(c, cells)`` bool, the cells that are visual tokens; where patches are folded there are no
        others.

    Returns
    -------
    Tensor
        ``(c, cells)`` float32.
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
    """How much of each tile to keep, relative to the ratio of the whole picture.

    Parameters
    ----------
    shown : Tensor
        ``(rows, columns)``, scores of the base view.
    grid : tuple of int
        Rows and columns of tiles. What is left when the base view is divided among them belongs to
        the last ones.
    temperature : float
        Of the softmax.

    Returns
    -------
    list of float
        Row by row; their mean is 1.
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
    picture: Picture, total: int, capacities: Sequence[int], ratios: Sequence[float]
) -> list[int]:
    """How many tokens of the base view, and of each tile."""
    fits = [capacities[tile] for tile in picture.tiles]
    base = capacities[picture.base]
    for_base = base * total // (base + sum(fits))
    weights = [fit * Fraction(ratio) for fit, ratio in zip(fits, ratios, strict=True)]
    return [for_base, *share_out(total - for_base, weights, fits)]


def _draw_map(scores: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """From cells ``(cells,)`` with their places to ``(rows, columns)``."""
    shown = scores.new_zeros(int(row.max()) + 1, int(column.max()) + 1)
    here = row >= 0
    shown[row[here], column[here]] = scores[here]
    return shown


def _score_tiles(local: Tensor, shown: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Own scores and those of the base view, over what is visible of each tile.

    Parameters
    ----------
    local : Tensor
        ``(tiles, cells)``, own scores.
    shown : Tensor
        ``(rows, columns)``, scores of the base view.
    row, column : Tensor
        ``(tiles, cells)`` int64, places in the stitched view; -1 where nothing is.
    """
    size = (int(row.max()) + 1, int(column.max()) + 1)
    enlarged = nn.functional.interpolate(
        shown[None, None], size=size, mode="bilinear", align_corners=False
    )[0, 0]
    visible = row >= 0
    parts = (local, enlarged[row.clamp(min=0), column.clamp(min=0)])
    own, shared = (nn.functional.normalize(part * visible, dim=-1) for part in parts)
    return own + shared


def _refuse_without_tiles(mine: Sequence[Picture], sample: int) -> None:
    for number, picture in enumerate(mine):
        if not picture.tiles:
            raise InputError(
                f"GlobalCom2 divides a budget among tiles, but picture {number} of sample {sample} "
                "has only one view: use it with models that cut pictures into tiles, for example "
                "LLaVA-Next, and FasterVLM elsewhere."
            )
