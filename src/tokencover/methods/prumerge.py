"""LLaVA-PruMerge and PruMerge+: adaptive token reduction (ICCV 2025).

Place: before the decoder. Signal: attention of the class token and similarity of keys in the last
tower block; the question is not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.methods._shared.crop_tokens import NO_TOKEN, CropTokens, Made, write_tokens
from tokencover.methods._shared.ranking import choose_best, find_highest
from tokencover.methods._shared.tower_crops import Crops, ReadsTower, compute_attention_rows
from tokencover.methods.base import Card, Choice, View, VisionOutputs
from tokencover.methods.registry import register_method

WHISKER = 1.5
"""Scores above the upper quartile by so many interquartile ranges are outliers."""


@register_method
@dataclass(frozen=True)
class PruMerge(ReadsTower):
    """Keep the patches that the class token attends to most, enriched, and one pooled token.

    arXiv 2403.15388. Scores a are the attention of the class token in the last tower block, taken
    as one head of the tower's whole width. Of a crop's share, one token is pooled: the sum of
    a_j x_j over all dropped tokens; the others are the best ones, each with the sum of a_j x_j over
    its nearest neighbours by keys added to it, whether those are kept or not.

    Where the released code differs: it keeps tokens in descending order of attention, here they
    stay in raster order, because positions tell the decoder the layout, and pooled tokens are last;
    outliers are sought in each crop, not in the whole batch at once; pictures with tiles, which it
    does not prune at all, are treated crop by crop with even shares of the budget; a crop that may
    keep all its tokens is left as it is. For towers without a class token scores are the mean
    attention received. Where the model folds patches into one token (the Qwens, InternVL) scores
    and keys are means over its patches, and the features x are those of tokens after folding.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep, pooled ones included. For `budget_mode` and `positions`
        see `BudgetedMethod`; the decoder gets a sequence without gaps.
    adaptive : bool
        Whether each crop keeps as many tokens as its scores have outliers, but at least one, and
        its pooled token. The number then differs from picture to picture; the budget is only a
        ceiling, and a crop that would exceed its share is treated as if this were off.
    neighbours : int
        How many tokens are added to each kept one.
    """

    name: ClassVar[str] = "prumerge"
    card: ClassVar[Card] = Card(
        title="PruMerge",
        year=2024,
        objective="visual",
        pruning_point="before the decoder",
        signal=(
            "class token's attention in the tower's last block; neighbours by keys are "
            "added, the dropped pooled"
        ),
        paper="2403.15388",
        needs=("encoder",),
        departs=(
            "raster order instead of falling attention; outliers are sought crop by crop; "
            "tiles are pruned too; no token twice"
        ),
    )

    adaptive: bool = False
    neighbours: int = 32
    drops_newlines = True
    merges = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neighbours < 0:
            raise InputError(f"neighbours must be at least 0 tokens, got {self.neighbours}.")

    def watched_vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        """The tower's last block, though visual tokens may come from an earlier one."""
        return (num_blocks - 1,)

    def choose(self, view: View) -> Choice:
        """Kept and pooled tokens of every crop."""
        encoded, crops = Crops.from_view(view, type(self).__name__)
        queries, keys = (
            encoded.queries(encoded.num_blocks - 1),
            encoded.keys(encoded.num_blocks - 1),
        )
        if encoded.classes:
            queries = queries[:, :, :1]  # no other query looks for anything
        queries, keys = _join_heads(queries), _join_heads(keys)
        scaling = queries.shape[-1] ** -0.5
        segments = encoded.segments(encoded.num_blocks - 1)
        rows = compute_attention_rows(queries, keys, scaling, encoded.classes, segments)
        scores = encoded.fold(rows).squeeze(1)
        keys = encoded.fold(keys[:, 0, encoded.classes :].transpose(1, 2)).transpose(1, 2)
        budgets = self.num_kept(view)
        counts = crops.share_evenly(budgets)
        made = {}
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
                    made[crop] = self._make_tokens(
                        view.hidden_states[sample], encoded, slots, features, near, weights, kept
                    )
        fill = None if self.adaptive else budgets
        return write_tokens(made, crops, view, fill, stay=self.positions == "original")

    def _choose_cells(self, scores: Tensor, share: int) -> Tensor:
        """Which of a crop's ``(m,)`` scores to keep, ascending; all of them if it is left alone."""
        if self.adaptive:
            wanted = self._choose_adaptively(scores)
            if len(wanted) < share:
                return wanted
        if share == len(scores):
            return torch.arange(share, device=scores.device)
        return self._choose_fixed(scores, share - 1)

    def _choose_adaptively(self, scores: Tensor) -> Tensor:
        return _find_top(scores, count_outliers(scores))

    def _choose_fixed(self, scores: Tensor, count: int) -> Tensor:
        return _find_top(scores, count)

    def _make_tokens(
        self,
        states: Tensor,
        encoded: VisionOutputs,
        slots: Tensor,
        features: Tensor,
        keys: Tensor,
        scores: Tensor,
        kept: Tensor,
    ) -> CropTokens:
        """What becomes of a crop of m visual tokens.

        Parameters
        ----------
        states : Tensor
            ``(n, d)``, visual tokens of the sample.
        encoded : VisionOutputs
            For its projector.
        slots : Tensor
            ``(m,)`` int64, the crop's tokens among them.
        features, keys, scores : Tensor
            ``(m, w)``, ``(m, width)`` and ``(m,)``.
        kept : Tensor
            Which of them stay, ascending.
        """
        none = Made(slots[:0], states[:0])
        if len(kept) == len(slots):
            return CropTokens(none, Made(slots, states[slots.to(states.device)]), none)
        values = features.float()
        dropped = scores.index_fill(0, kept, 0.0).unsqueeze(0)
        new = torch.cat([self._weigh_neighbours(keys, scores, kept), dropped]) @ values
        new[:-1] += values.index_select(0, kept)
        projected = encoded.project(new.to(features.dtype))
        nowhere = slots.new_full((1,), NO_TOKEN)
        return CropTokens(none, Made(slots[kept], projected[:-1]), Made(nowhere, projected[-1:]))

    def _weigh_neighbours(self, keys: Tensor, scores: Tensor, kept: Tensor) -> Tensor:
        """``(kept, m)``, the scores of each kept token's neighbours, zero elsewhere."""
        unit = nn.functional.normalize(keys.float(), dim=-1)
        alike = unit.index_select(0, kept) @ unit.T
        alike.scatter_(1, kept.unsqueeze(-1), -torch.inf)
        count = min(self.neighbours, len(scores) - 1)
        near = find_highest(alike, count)
        return torch.zeros_like(alike).scatter(1, near, scores[near])


@register_method
@dataclass(frozen=True)
class PruMergePlus(PruMerge):
    """PruMerge, and tokens at even steps all over the picture among those it keeps.

    arXiv 2403.15388. With `adaptive`, m of a crop's n tokens are outliers, and every s-th token is
    kept too, where s is a third of n / m, rounded down twice.

    Where the released code differs, beyond what `PruMerge` says: steps of less than one token,
    which stop it, are steps of one. Its steps never reach the last patch, nor do they here: a step
    of one adds 575 of 576. For a fixed number of tokens it
    takes as many at even steps as by attention and keeps those twice that are both; here half are
    taken by attention (the larger half if odd), then the others at even steps from what remains, so
    that no token is kept twice.
    """

    name: ClassVar[str] = "prumerge+"
    card: ClassVar[Card] = Card(
        title="PruMerge+",
        year=2024,
        objective="visual",
        pruning_point="before the decoder",
        signal="as PruMerge, and tokens at even steps",
        paper="2403.15388",
        needs=("encoder",),
        departs="as PruMerge",
    )

    def _choose_adaptively(self, scores: Tensor) -> Tensor:
        count = count_outliers(scores)
        step = max(1, len(scores) // count // 3)
        kept = torch.zeros_like(scores, dtype=torch.bool)
        kept[_find_top(scores, count)] = True
        kept[:-1:step] = True
        return kept.nonzero().squeeze(-1)

    def _choose_fixed(self, scores: Tensor, count: int) -> Tensor:
        spread = count // 2
        top = _find_top(scores, count - spread)
        rest = torch.ones_like(scores, dtype=torch.bool)
        rest[top] = False
        others = rest.nonzero().squeeze(-1)
        steps = torch.arange(spread, device=scores.device) * 2 + 1
        middles = steps * len(others) // (2 * max(1, spread))
        return torch.cat([top, others[middles]]).sort().values


def count_outliers(scores: Tensor) -> int:
    """How many of the ``(m,)`` scores are outliers, but at least one."""
    lower, upper = torch.quantile(scores, scores.new_tensor([0.25, 0.75])).tolist()
    return max(1, int((scores > upper + WHISKER * (upper - lower)).sum()))


def _find_top(scores: Tensor, count: int) -> Tensor:
    """The cells with the highest scores, ascending."""
    everyone = torch.ones_like(scores, dtype=torch.bool)
    return choose_best(scores[None], everyone[None], [count])[0].sort().values


def _join_heads(parts: Tensor) -> Tensor:
    """From ``(c, heads, t, head_dim)`` to ``(c, 1, t, heads * head_dim)``."""
    return parts.transpose(1, 2).flatten(2).unsqueeze(1)
