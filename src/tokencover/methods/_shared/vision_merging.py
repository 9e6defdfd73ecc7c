"""Merging inside the vision encoder: base class, counts per block, bipartite soft matching."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional

from tokencover.budget import Budget, tokens_to_keep
from tokencover.covering import keep_precision, rank_ascending, rank_descending, select_largest
from tokencover.errors import InputError
from tokencover.methods.base import (
    BudgetedMethod,
    Choice,
    Positions,
    View,
    VisionMerge,
    VisionView,
)


@dataclass(frozen=True)
class VisionMergingMethod(BudgetedMethod):
    """A method that merges inside vision-encoder blocks, before the feed-forward network.

    Parameters
    ----------
    budget : int or float
        K. A count is per image or video, and its crops (tiles or frames) share it evenly, rounded
        down: 64 tokens for an image of 5 crops keep 12 of each. The images of one call must then
        have equally many crops. A fraction is one of each crop. Newline and class tokens are not
        counted.
    budget_mode : "exact", "layer_mean" or "flops"
        All the same here: every decoder layer processes K tokens.
    positions : "reindex" or "original"
        Renumbered without gaps, or the position of the first token that a kept one represents.
    """

    reads_prompt = False

    inside_vision_blocks = True

    positions: Positions = field(default="reindex", kw_only=True)

    @abstractmethod
    def vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        """Return the blocks inside which the method merges, ascending."""

    @abstractmethod
    def plan_counts(self, total: int, num_kept: int, blocks: int) -> Sequence[int]:
        """Return the tokens of a crop after each block, from `total` down to `num_kept`."""

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        """Return nothing: it never prunes in the decoder."""
        return ()

    def choose(self, view: View) -> Choice:
        """Keep everything: the decoder gets merged tokens."""
        return Choice([torch.arange(count) for count in view.mask.sum(-1).tolist()])

    def schedule(self, num_kept: int, total: int, num_layers: int) -> list[int]:
        """Return `num_kept` for every layer."""
        return [num_kept] * num_layers

    def count_to_remove(self, view: VisionView) -> int:
        """Return how many tokens each crop must lose in this block, class tokens apart."""
        blocks = list(self.vision_blocks(view.num_blocks, view.feature_block))
        total = view.grid[0] * view.grid[1]
        num_kept = count_per_crop(self.budget, view.crops, total)
        after = self.plan_counts(total, num_kept, len(blocks))[blocks.index(view.block)]
        return view.hidden_states.shape[1] - view.classes - after


def keep_unmerged(view: VisionView) -> VisionMerge:
    """Return a merge that changes nothing."""
    crops, count, _ = view.hidden_states.shape
    groups = torch.arange(count, device=view.hidden_states.device).expand(crops, -1)
    return VisionMerge(groups, view.hidden_states)


def check_numbers(values: Tensor, view: VisionView) -> None:
    """Raise if a crop has NaN among its scores ``(c, ...)``."""
    bad = values.isnan().flatten(1).any(1)
    if bool(bad.any()):
        raise InputError(
            f"in block {view.block} of the vision encoder, the scores of crop "
            f"{int(bad.nonzero()[0])} are NaN: check the hidden states, for example for a float16 "
            "overflow."
        )


def count_per_crop(budget: Budget, crops: Sequence[int], total: int) -> int:
    """Return how many of the `total` tokens each crop keeps; a count is per image."""
    if isinstance(budget, float):
        return tokens_to_keep(budget, total)
    if len(set(crops)) != 1:
        raise InputError(
            f"budget={budget} tokens per image gives crops of different lengths, because the "
            f"images of this call have {', '.join(map(str, sorted(set(crops))))} crops: use a "
            f"fraction of the tokens, for example {budget / (total * max(crops)):.3f}, or one "
            "image per call."
        )
    (count,) = set(crops)
    if budget < count:
        raise InputError(
            f"budget={budget} is too small for the {count} crops of an image: use at least {count}."
        )
    return tokens_to_keep(budget // count, total)


@lru_cache(maxsize=256)
def remove_evenly(total: int, num_kept: int, blocks: int, inflect: float = 0.0) -> tuple[int, ...]:
    """Return the tokens after each block, removed evenly or along a straight line.

    With r = (total - num_kept) / blocks the first block removes about r (1 - inflect), the last
    r (1 + inflect). Remainders go to the blocks that lose most by rounding down, earlier first.
    """
    mean = Fraction(total - num_kept, blocks)
    slope = Fraction(inflect)
    exact = [
        mean * (1 + slope * (Fraction(2 * block, blocks - 1) - 1)) if blocks > 1 else mean
        for block in range(blocks)
    ]
    removed = [math.floor(count) for count in exact]
    by_loss = sorted(range(blocks), key=lambda block: (removed[block] - exact[block], block))
    for block in by_loss[: total - num_kept - sum(removed)]:
        removed[block] += 1
    return tuple(total - lost for lost in accumulate(removed))


def limit_to_half(counts: Sequence[int], total: int) -> list[int]:
    """Lower the counts after each block, so no block removes more than half of its tokens.

    Blocks that would remove too much leave the rest to earlier ones; the last count is unchanged.
    """
    lowered = list(counts)
    for block in range(len(lowered) - 1, 0, -1):
        lowered[block - 1] = min(lowered[block - 1], 2 * lowered[block])
    if total > 2 * lowered[0]:
        smallest = -(-total // 2 ** len(lowered))
        raise InputError(
            f"{len(lowered)} blocks of the vision encoder, each removing at most half of the "
            f"tokens, cannot reduce a crop from {total} to {lowered[-1]} tokens: the smallest "
            f"budget is {smallest} tokens per crop of an image, or a fraction of "
            f"{smallest / total:.4f}."
        )
    return lowered


@dataclass(frozen=True, slots=True)
class Matching:
    """Which tokens are merged.

    `kept` ``(c, m)`` are the tokens that stay, in their new order; `merged` ``(c, r)`` those that
    do not; `into` ``(c, r)`` the indices in `kept` that these are merged into.
    """

    kept: Tensor
    merged: Tensor
    into: Tensor

    @property
    def groups(self) -> Tensor:
        """Return the new token ``(c, m + r)`` int64 that each token becomes part of."""
        crops, count = self.kept.shape
        groups = self.kept.new_empty(crops, count + self.merged.shape[1])
        targets = torch.arange(count, device=groups.device).expand(crops, -1)
        return groups.scatter(1, self.kept, targets).scatter(1, self.merged, self.into)

    def average(self, values: Tensor, sizes: Tensor) -> Tensor:
        """Average ``(c, n, w)`` over the members of each new token, weighted by ``(c, n)`` sizes.

        Summed in float32 at least and returned in their dtype.
        """
        exact = torch.promote_types(values.dtype, torch.float32)
        # A product with zeros and ones: scattered sums would depend on the order of threads.
        joins = functional.one_hot(self.into, self.kept.shape[1]).transpose(1, 2).to(exact)
        parts = []
        for index in (self.kept, self.merged):
            weights = sizes.gather(1, index).unsqueeze(-1).to(exact)
            parts.append((take_rows(values, index).to(exact).mul_(weights), weights))
        (sums, counts), (more, added) = parts
        with torch.autocast(values.device.type, enabled=False):
            # In place: allocating memory of that size takes longer than the sums.
            sums.baddbmm_(joins, more).div_(torch.baddbmm(counts, joins, added))
        return sums.to(values.dtype)


def match_pairs(metric: Tensor, remove: int, protected: int = 0) -> Matching:
    """Merge the `remove` most similar pairs of tokens at even and odd indices (arXiv 2210.09461).

    A are the tokens at even indices, B those at odd ones. Each token of A is matched to the most
    similar one of B, by cosine of `metric` ``(c, n, w)``; the A tokens with the largest similarity
    are merged into their match. The new order is that of A without the merged, then B. The first
    `protected` tokens are neither merged nor merged into.
    """
    crops, count, _ = metric.shape
    with keep_precision(metric.device):
        unit = functional.normalize(metric.float(), dim=-1)
        similarity = unit[:, ::2] @ unit[:, 1::2].transpose(1, 2)
    similarity[:, : (protected + 1) // 2] = -torch.inf
    similarity[:, :, : protected // 2] = -torch.inf
    partner = select_largest(similarity)
    sources = rank_descending(similarity.amax(-1))[:, :remove]
    merged = 2 * sources

    indices = torch.arange(count, device=metric.device)
    group = torch.where(indices < protected, 0, 1 + indices % 2).expand(crops, -1)
    order = rank_ascending(group.scatter(1, merged, 3))
    new_index = torch.empty_like(order).scatter(1, order, indices.expand(crops, -1))
    into = new_index.gather(1, 2 * partner.gather(1, sources) + 1)
    return Matching(order[:, : count - remove], merged, into)


def take_rows(values: Tensor, index: Tensor) -> Tensor:
    """Gather rows of each crop: ``(c, n, w)`` and ``(c, k)`` give ``(c, k, w)``."""
    crops, count, _ = values.shape
    first = torch.arange(0, crops * count, count, device=index.device).unsqueeze(-1)
    # Whole rows: several times faster than a gather of single values.
    rows = values.flatten(0, 1).index_select(0, (index + first).flatten())
    return rows.view(*index.shape, -1)
