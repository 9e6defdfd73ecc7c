"""FiCoCo-V (AAAI 2026): Filter, Correlate, Compress in the vision encoder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from tokencover.covering import keep_precision, rank_descending, select_largest
from tokencover.methods._shared.vision_merging import (
    Matching,
    VisionMergingMethod,
    check_numbers,
    keep_unmerged,
    remove_evenly,
    take_rows,
)
from tokencover.methods.base import Card, VisionMerge, VisionView
from tokencover.methods.registry import register_method

WINDOW = 2
"""Rows and columns of the windows of the local penalty."""


@register_method
@dataclass(frozen=True)
class FiCoCoV(VisionMergingMethod):
    """Drop redundant tokens block by block, and merge them into the tokens they attend to.

    https://arxiv.org/abs/2411.17686

    - Filter: token i is redundant if the other patches attend to it and the class token does not:
      w_p * mean_j A_ji - w_c * a_cls_i, both vectors scaled to length 1. Without a class token, the
      mean of the keys attends in its place. The most redundant token of each 2 x 2 window is made
      more so; then the r most redundant tokens are dropped.
    - Correlate: a dropped token i goes to the kept tokens j whose attention A_ij reaches the
      epsilon
      quantile of its row, with weights alpha_ij proportional to A_ij.
    - Compress: x_j becomes (x_j + sum_i alpha_ij x_i) / (1 + sum_i alpha_ij).

    A is the softmax attention of the block, mean over heads. r follows from K and differs by at
    most one between blocks. A dropped token is located with the earlier kept token it attends to
    most.

    The released code differs from the paper: it scores with attention before the softmax, loses
    track of the class token and the grid after the first block, sends dropped tokens to slots that
    have moved, and keeps scores from one image to the next. This is the paper's method.

    Parameters
    ----------
    budget : int or float
        K, tokens per image or fraction of each crop; see `VisionMergingMethod` for this,
        `budget_mode` and `positions`.
    patch_weight, class_weight : float
        w_p and w_c, at least 0.
    quantile : float
        epsilon, in [0, 1].
    """

    name: ClassVar[str] = "ficoco_v"
    card: ClassVar[Card] = Card(
        title="FiCoCo-V",
        year=2024,
        objective="visual",
        pruning_point="in the second half of the vision encoder",
        signal="attention between patches, attention of the class token",
        paper="2411.17686",
        needs=("vision merging",),
        departs=(
            "the paper's method, where the code loses the class token, the grid and the "
            'targets after its first block; r follows from K; "attention received" is the '
            "mean over queries"
        ),
    )

    setting_limits: ClassVar = {
        "patch_weight": (0, math.inf),
        "class_weight": (0, math.inf),
        "quantile": (0, 1),
    }

    patch_weight: float = 0.65
    class_weight: float = 0.35
    quantile: float = 0.998

    def vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        """Return the second half of the blocks up to the feature block, or only that one."""
        return range(min(num_blocks // 2, feature_block), feature_block + 1)

    def plan_counts(self, total: int, num_kept: int, blocks: int) -> Sequence[int]:
        """See `VisionMergingMethod.plan_counts`."""
        return remove_evenly(total, num_kept, blocks)

    def merge_in_vision_encoder(self, view: VisionView) -> VisionMerge:
        """Filter, correlate, compress."""
        remove = self.count_to_remove(view)
        if remove == 0:
            return keep_unmerged(view)
        with keep_precision(view.hidden_states.device):
            attention = view.attention().float()
            redundancy = self._rate_redundancy(view, attention)
            check_numbers(redundancy, view)
            order = rank_descending(redundancy) + view.classes
            dropped = order[:, :remove]
            kept = order[:, remove:].sort(dim=1).values
            among = take_rows(attention, dropped).gather(
                2, kept.unsqueeze(1).expand(-1, remove, -1)
            )
            weights = compute_merge_weights(among, self.quantile)
        states = compress(view.hidden_states, kept, dropped, weights)
        states = torch.cat([view.hidden_states[:, : view.classes], states], dim=1)
        return VisionMerge(_group_tokens(view.classes, kept, dropped, among), states)

    def _rate_redundancy(self, view: VisionView, attention: Tensor) -> Tensor:
        """Return the redundancy of each token, windows applied, ``(c, n - classes)``."""
        received = attention[:, view.classes :, view.classes :].mean(1)
        if view.classes:
            important = attention[:, : view.classes, view.classes :].mean(1)
        else:
            important = attend_from_mean_key(view.keys())
        plain = self.patch_weight * functional.normalize(received, dim=-1)
        plain = plain - self.class_weight * functional.normalize(important, dim=-1)
        return penalize_locally(plain, compute_windows(view))


def _group_tokens(classes: int, kept: Tensor, dropped: Tensor, among: Tensor) -> Tensor:
    """Group each dropped token with the earlier kept one it attends to most, or the first."""
    alone = torch.arange(classes, device=kept.device).expand(len(kept), -1)
    later = kept.unsqueeze(1) > dropped.unsqueeze(2)
    into = select_largest(among.masked_fill(later, -1)) + classes
    return Matching(torch.cat([alone, kept], dim=1), dropped, into).groups


def attend_from_mean_key(keys: Tensor) -> Tensor:
    """Return what the mean key of ``(c, heads, n, head_dim)`` attends to, ``(c, n)`` float32."""
    keys = keys.float()
    logits = keys @ keys.mean(2).unsqueeze(-1) / math.sqrt(keys.shape[-1])
    return logits.squeeze(-1).softmax(-1).mean(1)


def compute_windows(view: VisionView) -> Tensor:
    """Return the window of the first member of each token, ``(c, n - classes)`` int64."""
    rows, columns = view.grid
    patches = view.members[:, view.classes :] - view.classes
    cell = torch.arange(rows * columns, device=patches.device).expand_as(patches)
    count = view.hidden_states.shape[1] - view.classes
    unset = patches.new_full((len(patches), count), rows * columns)
    first = unset.scatter_reduce(1, patches, cell, "amin")
    return first // columns // WINDOW * -(-columns // WINDOW) + first % columns // WINDOW


def penalize_locally(redundancy: Tensor, windows: Tensor) -> Tensor:
    """Double the redundancy ``(c, n)`` of the worst token of each window; halve it if negative."""
    crops, count = redundancy.shape
    slots = int(windows.max()) + 1
    worst = redundancy.new_full((crops, slots), -torch.inf)
    worst = worst.scatter_reduce(1, windows, redundancy, "amax").gather(1, windows)
    index = torch.arange(count, device=windows.device).expand(crops, -1)
    first = windows.new_full((crops, slots), count)
    candidates = index.where(redundancy == worst, count)
    first = first.scatter_reduce(1, windows, candidates, "amin").gather(1, windows)
    pushed = torch.where(redundancy > 0, 2 * redundancy, redundancy / 2)
    return torch.where(index == first, pushed, redundancy)


def compute_merge_weights(correlation: Tensor, quantile: float) -> Tensor:
    """Return how each dropped token is divided among kept ones, ``(c, r, m)``; rows sum to 1.

    It goes to those whose `correlation` ``(c, r, m)`` reaches this quantile of its row.
    """
    count = correlation.shape[-1]
    rank = quantile * (count - 1)
    # For a high quantile the values above this rank are few.
    falling = correlation.topk(count - math.floor(rank), dim=-1).values
    low, high = falling[..., -1], falling[..., count - 1 - math.ceil(rank)]
    threshold = torch.lerp(low, high, rank - math.floor(rank)).unsqueeze(-1)
    targets = correlation >= threshold
    weights = correlation.where(targets, 0)
    # A row of zeros (all attention is elsewhere) is divided evenly.
    nothing = weights.sum(-1, keepdim=True) == 0
    weights = torch.where(nothing, targets.to(weights), weights)
    return weights / weights.sum(-1, keepdim=True)


def compress(states: Tensor, kept: Tensor, dropped: Tensor, weights: Tensor) -> Tensor:
    """Merge dropped tokens ``(c, r)`` of ``(c, n, d)`` into kept ones, ``(c, m, d)``."""
    exact = torch.promote_types(states.dtype, torch.float32)
    weights = weights.transpose(1, 2).to(exact)
    with torch.autocast(states.device.type, enabled=False):
        sums = take_rows(states, kept).to(exact) + weights @ take_rows(states, dropped).to(exact)
        means = sums / (1 + weights.sum(-1, keepdim=True))
    return means.to(states.dtype)
