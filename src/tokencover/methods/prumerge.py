"""LLaVA-PruMerge and PruMerge+ (ICCV 2025): adaptive token reduction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from tokencover.methods._shared.crop_tokens import NO_TOKEN, CropTokens, NewTokens, write_tokens
from tokencover.methods._shared.ranking import choose_top, select_highest
from tokencover.methods._shared.vision_tiles import (
    Crops,
    VisionEncoderMethod,
    compute_patch_attention,
)
from tokencover.methods.base import Card, Choice, View, VisionOutputs
from tokencover.methods.registry import register_method

WHISKER = 1.5
"""Scores above the upper quartile by so many interquartile ranges are outliers."""


@register_method
@dataclass(frozen=True)
class PruMerge(VisionEncoderMethod):
    """Keep the patches that the class token attends to most, enriched, and one pooled token.

    https://arxiv.org/abs/2403.15388. Scores a are the attention of the class token in the last
    vision-encoder block, computed as one head of the full width. Of a crop's tokens, one is pooled:
    the sum of a_j x_j over all dropped tokens; the remaining ones have the highest scores, and the
    sum of a_j x_j over the nearest neighbors by keys, kept or not, is added to each.

    Differences from the released code: kept tokens stay in raster order, not by falling attention,
    and pooled tokens are last; outliers are computed per crop, not over the batch; tiles are pruned
    too, with equal budgets; a crop that may keep all its tokens is unchanged. Without a class token
    scores are the mean attention received. Where the model merges patches, scores and keys are
    means over the patches of a token.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep, pooled ones included. For `budget_mode` and `positions`
        see `BudgetedMethod`.
    adaptive : bool
        Whether each crop keeps as many tokens as its scores have outliers, at least one, and its
        pooled token. The budget is then only an upper limit.
    neighbours : int
        How many neighbors are added to each kept token; 32 by default.
    """

    name: ClassVar[str] = "prumerge"
    card: ClassVar[Card] = Card(
        title="PruMerge",
        year=2024,
        objective="visual",
        pruning_point="before the decoder",
        signal=(
            "class token's attention in the vision encoder's last block; neighbors by keys are "
            "added, the dropped pooled"
        ),
        paper="2403.15388",
        needs=("vision attention",),
        departs=(
            "raster order instead of falling attention; outliers are computed per crop; tiles are "
            "pruned too; no token twice"
        ),
    )

    drops_newlines = True
    merges = True
    setting_minimums: ClassVar = {"neighbours": 0}

    adaptive: bool = False
    neighbours: int = 32

    def watched_vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        """Return the last block, even if visual tokens come from an earlier one."""
        return (num_blocks - 1,)

    def choose(self, view: View) -> Choice:
        """Compute kept and pooled tokens of every crop."""
        encoded, crops = Crops.from_view(view, type(self).__name__)
        queries, keys = (
            encoded.queries(encoded.num_blocks - 1),
            encoded.keys(encoded.num_blocks - 1),
        )
        if encoded.classes:
            queries = queries[:, :, :1]  # only the class token's query is read
        queries, keys = _join_heads(queries), _join_heads(keys)
        scaling = queries.shape[-1] ** -0.5
        segments = encoded.segments(encoded.num_blocks - 1)
        rows = compute_patch_attention(queries, keys, scaling, encoded.classes, segments)
        scores = encoded.fold(rows).squeeze(1)
        keys = encoded.fold(keys[:, 0, encoded.classes :].transpose(1, 2)).transpose(1, 2)
        budgets = self.num_kept(view)
        counts = crops.allocate_evenly(budgets)
        tokens_of = {}
        for sample, mine in enumerate(crops.members):
            for crop in mine:
                if counts[crop]:
                    parts = [
                        crops.slot[crop],
                        encoded.features[crop, encoded.classes :],
                        keys[crop],
                        scores[crop],
                    ]
                    if crops.capacities[crop] < len(crops.slot[crop]):
                        parts = [part[crops.visible[crop]] for part in parts]
                    slots, features, near, weights = parts
                    kept = self._choose_cells(weights, counts[crop])
                    tokens_of[crop] = self._build_tokens(
                        view.hidden_states[sample], encoded, slots, features, near, weights, kept
                    )
        fill = None if self.adaptive else budgets
        return write_tokens(tokens_of, crops, view, fill, stay=self.positions == "original")

    def _choose_cells(self, scores: Tensor, budget: int) -> Tensor:
        """Return the cells of a crop to keep, ascending; all if it is unchanged."""
        if self.adaptive:
            wanted = self._choose_adaptively(scores)
            if len(wanted) < budget:
                return wanted
        if budget == len(scores):
            return torch.arange(budget, device=scores.device)
        return self._choose_fixed(scores, budget - 1)

    def _choose_adaptively(self, scores: Tensor) -> Tensor:
        return _select_top(scores, count_outliers(scores))

    def _choose_fixed(self, scores: Tensor, count: int) -> Tensor:
        return _select_top(scores, count)

    def _build_tokens(
        self,
        states: Tensor,
        encoded: VisionOutputs,
        slots: Tensor,
        features: Tensor,
        keys: Tensor,
        scores: Tensor,
        kept: Tensor,
    ) -> CropTokens:
        """Return the tokens of a crop, given its m visual tokens among the ``(n, d)`` states.

        `slots`, `features`, `keys` and `scores` have m rows; `kept` are indices of those that stay.
        """
        none = NewTokens(slots[:0], states[:0])
        if len(kept) == len(slots):
            return CropTokens(none, NewTokens(slots, states[slots.to(states.device)]), none)
        values = features.float()
        dropped = scores.index_fill(0, kept, 0.0).unsqueeze(0)
        new = torch.cat([self._weigh_neighbours(keys, scores, kept), dropped]) @ values
        new[:-1] += values.index_select(0, kept)
        projected = encoded.project(new.to(features.dtype))
        no_source = slots.new_full((1,), NO_TOKEN)
        return CropTokens(
            none, NewTokens(slots[kept], projected[:-1]), NewTokens(no_source, projected[-1:])
        )

    def _weigh_neighbours(self, keys: Tensor, scores: Tensor, kept: Tensor) -> Tensor:
        """Return the scores of each kept token's neighbors, zero elsewhere, ``(kept, m)``."""
        unit = nn.functional.normalize(keys.float(), dim=-1)
        alike = unit.index_select(0, kept) @ unit.T
        alike.scatter_(1, kept.unsqueeze(-1), -torch.inf)
        count = min(self.neighbours, len(scores) - 1)
        near = select_highest(alike, count)
        return torch.zeros_like(alike).scatter(1, near, scores[near])


@register_method
@dataclass(frozen=True)
class PruMergePlus(PruMerge):
    """PruMerge, and tokens at even steps over the whole image among those it keeps.

    https://arxiv.org/abs/2403.15388. With `adaptive`, m of a crop's n tokens are outliers, and
    every s-th token is kept too, where s is a third of n / m, rounded down twice, at least 1; as in
    the released code the steps never reach the last patch. For a fixed number of tokens the
    released code keeps those twice that are chosen both by steps and by attention; here half are
    chosen by attention (the larger half if odd), then the rest at even steps from the remaining
    ones.

    Parameters
    ----------
    budget, adaptive, neighbours
        See `PruMerge`.
    """

    name: ClassVar[str] = "prumerge+"
    card: ClassVar[Card] = Card(
        title="PruMerge+",
        year=2024,
        objective="visual",
        pruning_point="before the decoder",
        signal="as PruMerge, and tokens at even steps",
        paper="2403.15388",
        needs=("vision attention",),
        departs="as PruMerge",
    )

    def _choose_adaptively(self, scores: Tensor) -> Tensor:
        count = count_outliers(scores)
        step = max(1, len(scores) // count // 3)
        kept = torch.zeros_like(scores, dtype=torch.bool)
        kept[_select_top(scores, count)] = True
        kept[:-1:step] = True
        return kept.nonzero().squeeze(-1)

    def _choose_fixed(self, scores: Tensor, count: int) -> Tensor:
        spread = count // 2
        top = _select_top(scores, count - spread)
        rest = torch.ones_like(scores, dtype=torch.bool)
        rest[top] = False
        cells = rest.nonzero().squeeze(-1)
        steps = torch.arange(spread, device=scores.device) * 2 + 1
        middles = steps * len(cells) // (2 * max(1, spread))
        return torch.cat([top, cells[middles]]).sort().values


def count_outliers(scores: Tensor) -> int:
    """Return how many of the ``(m,)`` scores are outliers, at least one."""
    lower, upper = torch.quantile(scores, scores.new_tensor([0.25, 0.75])).tolist()
    return max(1, int((scores > upper + WHISKER * (upper - lower)).sum()))


def _select_top(scores: Tensor, count: int) -> Tensor:
    """Return the cells with the highest scores, ascending."""
    return choose_top(scores, count).sort().values


def _join_heads(parts: Tensor) -> Tensor:
    """From ``(c, heads, t, head_dim)`` to ``(c, 1, t, heads * head_dim)``."""
    return parts.transpose(1, 2).flatten(2).unsqueeze(1)
