"""FiCoCo-V: Filter, Correlate, Compress in the vision tower (arXiv 2411.17686, AAAI 2026).

Place: inside the second half of the vision tower's blocks, between attention and feed-forward
network. Signal: the attention that tokens receive from each other and from the class token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from tokencover.covering import keep_precision, rank_descending, select_largest
from tokencover.errors import InputError
from tokencover.methods._shared.bipartite_matching import Matching, take_rows
from tokencover.methods._shared.tower_method import (
    TowerMethod,
    check_numbers,
    leave_unchanged,
    remove_evenly,
)
from tokencover.methods.base import Card, VisionMerge, VisionView
from tokencover.methods.registry import register_method

WINDOW = 2
"""Rows and columns of the windows of the local penalty."""


@register_method
@dataclass(frozen=True)
class FiCoCoV(TowerMethod):
    """Drop redundant tokens block by block, and recycle them in the tokens they attend to.

    - Filter: token i is redundant if the other patches attend to it (what it holds is found
      elsewhere) and the class token does not: w_p * mean_j A_ji - w_c * a_cls_i, each of the two
      vectors scaled to length 1. Where there is no class token, the mean of the keys attends in its
      place. The most redundant token of each 2 x 2 window of the picture is made more so, which
      spreads what is dropped; then the r most redundant tokens go.
    - Correlate: a dropped token i goes to the kept tokens j whose attention A_ij reaches the
      epsilon quantile of its row, in shares alpha_ij proportional to A_ij.
    - Compress: x_j becomes (x_j + sum_i alpha_ij x_i) / (1 + sum_i alpha_ij).

    A is the softmax attention of the block, mean over heads. The paper gives r; here it follows
    from K and differs by at most one between blocks, so that exactly K tokens are left, in the
    order of the picture.

    A dropped token is spread over several kept ones, but its group can be only one, and a group
    lies in the picture where its first member does. So a dropped token is counted to the kept token
    before it that it attends to most: kept tokens then lie where they are, but for the first of a
    crop, which lies in the corner.

    The released code differs from the paper: it scores with attention before the softmax, loses
    track of the class token and of the grid after the first block, sends dropped tokens to places
    that have moved meanwhile, and keeps scores from one picture to the next. This is the paper's
    method.

    Parameters
    ----------
    budget : int or float
        K, tokens of a picture or share of each crop; see `TowerMethod` for this, `budget_mode` and
        `positions`.
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
        pruning_point="in the second half of the vision tower",
        signal="attention among patches, attention of the class token",
        paper="2411.17686",
        needs=("tower",),
        departs=(
            "the paper's method, where the code loses the class token, the grid and the "
            'targets after its first block; r follows from K; "attention received" is the '
            "mean over queries"
        ),
    )

    patch_weight: float = 0.65
    class_weight: float = 0.35
    quantile: float = 0.998

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, most in (("patch_weight", math.inf), ("class_weight", math.inf), ("quantile", 1)):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 <= value <= most or math.isinf(value):
                limit = "at least 0" if name != "quantile" else "between 0 and 1"
                raise InputError(f"{name} must be a number {limit}, got {value!r}.")

    def vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        """The tower's second half up to the feature block, or that block alone if it is earlier."""
        return range(min(num_blocks // 2, feature_block), feature_block + 1)

    def plan_counts(self, total: int, left: int, blocks: int) -> list[int]:
        """See `TowerMethod.plan_counts`."""
        return remove_evenly(total, left, blocks)

    def merge_in_vision_encoder(self, view: VisionView) -> VisionMerge:
        """Filter, correlate, compress."""
        remove = self.count_to_remove(view)
        if remove == 0:
            return leave_unchanged(view)
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
            shares = share_dropped(among, self.quantile)
        states = compress(view.hidden_states, kept, dropped, shares)
        states = torch.cat([view.hidden_states[:, : view.classes], states], dim=1)
        return VisionMerge(_group_tokens(view.classes, kept, dropped, among), states)

    def _rate_redundancy(self, view: VisionView, attention: Tensor) -> Tensor:
        """``(c, n - classes)``, how little each token would be missed, windows applied."""
        received = attention[:, view.classes :, view.classes :].mean(1)
        if view.classes:
            important = attention[:, : view.classes, view.classes :].mean(1)
        else:
            important = attend_from_mean_key(view.keys())
        plain = self.patch_weight * functional.normalize(received, dim=-1)
        plain = plain - self.class_weight * functional.normalize(important, dim=-1)
        return penalise_locally(plain, find_windows(view))


def _group_tokens(classes: int, kept: Tensor, dropped: Tensor, among: Tensor) -> Tensor:
    """Count each dropped token to the kept one before it that it attends to most, or the first."""
    alone = torch.arange(classes, device=kept.device).expand(len(kept), -1)
    later = kept.unsqueeze(1) > dropped.unsqueeze(2)
    into = select_largest(among.masked_fill(later, -1)) + classes
    return Matching(torch.cat([alone, kept], dim=1), dropped, into).groups


def attend_from_mean_key(keys: Tensor) -> Tensor:
    """What a class token whose query is the mean of the keys would attend to.

    Parameters
    ----------
    keys : Tensor
        ``(c, heads, n, head_dim)``.

    Returns
    -------
    Tensor
        ``(c, n)`` float32, mean over heads.
    """
    keys = keys.float()
    logits = keys @ keys.mean(2).unsqueeze(-1) / math.sqrt(keys.shape[-1])
    return logits.squeeze(-1).softmax(-1).mean(1)


def find_windows(view: VisionView) -> Tensor:
    """``(c, n - classes)`` int64, the window in which the first member of each token lies."""
    rows, columns = view.grid
    patches = view.members[:, view.classes :] - view.classes
    cell = torch.arange(rows * columns, device=patches.device).expand_as(patches)
    count = view.hidden_states.shape[1] - view.classes
    unset = patches.new_full((len(patches), count), rows * columns)
    place = unset.scatter_reduce(1, patches, cell, "amin")
    return place // columns // WINDOW * -(-columns // WINDOW) + place % columns // WINDOW


def penalise_locally(redundancy: Tensor, windows: Tensor) -> Tensor:
    """Make the most redundant token of each window more redundant.

    Parameters
    ----------
    redundancy : Tensor
        ``(c, n)``.
    windows : Tensor
        ``(c, n)`` int64, the window of each token.

    Returns
    -------
    Tensor
        ``(c, n)``: for the most redundant token of each window, the first of several, the double if
        it is positive and half of it if negative.
    """
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


def share_dropped(correlation: Tensor, quantile: float) -> Tensor:
    """How each dropped token is divided among kept ones.

    Parameters
    ----------
    correlation : Tensor
        ``(c, r, m)``, of dropped tokens with kept ones; not negative.
    quantile : float
        epsilon; a dropped token goes to the kept ones that reach this quantile of its row (linear
        between two values).

    Returns
    -------
    Tensor
        ``(c, r, m)``, rows sum to 1.
    """
    count = correlation.shape[-1]
    place = quantile * (count - 1)
    # The largest down to the place are few where the quantile is high.
    falling = correlation.topk(count - math.floor(place), dim=-1).values
    low, high = falling[..., -1], falling[..., count - 1 - math.ceil(place)]
    threshold = torch.lerp(low, high, place - math.floor(place)).unsqueeze(-1)
    targets = correlation >= threshold
    weights = correlation.where(targets, 0)
    # A row of zeros, attention that is all elsewhere, has no largest target: all share alike.
    nothing = weights.sum(-1, keepdim=True) == 0
    weights = torch.where(nothing, targets.to(weights), weights)
    return weights / weights.sum(-1, keepdim=True)


def compress(states: Tensor, kept: Tensor, dropped: Tensor, shares: Tensor) -> Tensor:
    """Kept tokens with their shares of dropped ones, themselves at full weight.

    Parameters
    ----------
    states : Tensor
        ``(c, n, d)``.
    kept, dropped : Tensor
        ``(c, m)`` and ``(c, r)`` int64.
    shares : Tensor
        ``(c, r, m)``.

    Returns
    -------
    Tensor
        ``(c, m, d)``, in the type of the states.
    """
    exact = torch.promote_types(states.dtype, torch.float32)
    shares = shares.transpose(1, 2).to(exact)
    with torch.autocast(states.device.type, enabled=False):
        sums = take_rows(states, kept).to(exact) + shares @ take_rows(states, dropped).to(exact)
        means = sums / (1 + shares.sum(-1, keepdim=True))
    return means.to(states.dtype)
