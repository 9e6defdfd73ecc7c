"""MustDrop (arXiv 2411.10803): merging in the vision encoder, then pruning in the decoder.

Differences from the released code: it drops by thresholds tuned for each benchmark, here the budget
sets the counts unless thresholds are given. Merged tokens replace the first of their nine, instead
of preceding all others. Newline tokens may be dropped, where it packs tiles without them. It also
cuts the KV cache of layers between its stages to the final tokens, and gives generated tokens
positions before the end of the prompt; here every layer keeps the tokens that it processed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from typing import ClassVar

import torch
from torch import Tensor

from tokencover.budget import PublishedMode, tokens_to_keep
from tokencover.covering import keep_precision, rank_descending
from tokencover.errors import InputError
from tokencover.methods._shared.decoder import (
    MethodInStages,
    check_text,
    count_by_layer,
    scale_stages,
    shrink_evenly,
)
from tokencover.methods._shared.ranking import choose_best
from tokencover.methods._shared.vision_tiles import compute_class_logits
from tokencover.methods.base import (
    Card,
    Choice,
    Positions,
    View,
    VisionMerge,
    VisionOutputs,
    VisionView,
)
from tokencover.methods.registry import register_method

WINDOW = 3
STAGES, DEPTH = (3, 7, 11, 15), 32
"""The published stages: before these layers of so many."""
START = "mustdrop.start"
_LEAST_NORM = 1e-12
"""Shorter tokens have no direction."""
_COSINE_STEPS = 2.0**20
"""Grid steps of a mean cosine, coarser than float32 errors."""


@dataclass(frozen=True, slots=True)
class _Start:
    """Values for all stages: tokens that reached the decoder, the final counts, and the key set.

    `key` ``(c * t,)`` bool marks tokens of the vision encoder.
    """

    present: list[int]
    num_kept: list[int]
    key: Tensor


@register_method
@dataclass(frozen=True)
class MustDrop(MethodInStages):
    """Merge similar neighbors, then keep what the class token or the text attends to.

    https://arxiv.org/abs/2411.10803. In the vision encoder, windows of 3 x 3 tokens with a mean
    pairwise cosine of at least 0.8 become one token each. The tokens that the class token attends
    to most are the key set. At each stage in the decoder the key set comes first, then the tokens
    with the largest sum of attention from the text after the image.

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` see `BudgetedMethod`. A fraction is one of all tokens before merging;
        if merging alone leaves fewer than K, all of those stay. Each stage keeps the same fraction
        of its tokens. A key set larger than a stage's count is also cut by the text's attention.
    merge_threshold : float, optional
        Least mean cosine of a merged window; None merges nothing. All crops of one call merge as
        many windows as the one with fewest above the threshold, so the result for an image depends
        on the other images of its call. Rows and columns that do not fill a window are not merged.
    key_share : float
        The key set's fraction of the tokens of each crop after merging, rounded up.
    global_threshold, individual_threshold : float, optional
        The published rule: drop a token outside the key set if the text's attention to it is below
        `global_threshold` of that to all visual tokens, and no text token's attention to it reaches
        `individual_threshold`. The budget is then only an upper limit, and 1.0 is no limit.
    positions : "reindex" or "original"
        See `BudgetedMethod`.
    stages : tuple of int, optional
        After which decoder layers to prune, counted from 0. By default the published 2, 6, 10 and
        14 of 32, at the same fractions of the depth in other decoders.
    """

    name: ClassVar[str] = "mustdrop"
    published_mode: ClassVar[PublishedMode] = "layer_mean"
    card: ClassVar[Card] = Card(
        title="MustDrop",
        year=2024,
        objective="both",
        pruning_point="in the encoder; after 3, 7, 11, 15 of 32",
        signal="similarity of neighbors, class token's attention, attention of the text",
        paper="2411.10803",
        needs=("vision attention", "class token", "vision merging", "text after the image"),
        departs=(
            "counts instead of thresholds tuned for each benchmark (`global_threshold`, "
            "`individual_threshold` restore them); merged tokens replace the first of them; "
            "caches are not cut afterwards"
        ),
    )
    reads_prompt = False
    drops_newlines = True
    setting_limits: ClassVar = {"key_share": (0, 1)}

    positions: Positions = field(default="reindex", kw_only=True)
    merge_threshold: float | None = 0.8
    key_share: float = 0.08
    global_threshold: float | None = None
    individual_threshold: float | None = None
    stages: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.merge_threshold is not None and not -1 <= self.merge_threshold <= 1:
            raise InputError(
                f"merge_threshold must be a cosine from -1 to 1, or None to merge nothing, got "
                f"{self.merge_threshold}."
            )
        if (self.global_threshold is None) != (self.individual_threshold is None):
            raise InputError(
                f"global_threshold {self.global_threshold} and individual_threshold "
                f"{self.individual_threshold} belong together: give both or none."
            )

    def vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        """Return block 1: merging follows the first block."""
        return () if self.merge_threshold is None else (1,)

    def merge_in_vision_encoder(self, view: VisionView) -> VisionMerge:
        """Merge windows of similar neighbors."""
        assert self.merge_threshold is not None
        classes, tokens = (
            view.hidden_states[:, : view.classes],
            view.hidden_states[:, view.classes :],
        )
        groups, merged = merge_windows(tokens, view.grid, WINDOW, self.merge_threshold)
        states = view.hidden_states if merged is tokens else torch.cat([classes, merged], dim=1)
        alone = torch.arange(view.classes, device=groups.device).expand(len(groups), -1)
        return VisionMerge(torch.cat([alone, groups + view.classes], dim=1), states)

    def watched_vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        """Return the last block, after the one that outputs the features."""
        return (num_blocks - 1,)

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        """Return the layer after each stage."""
        if self.stages is None:
            return scale_stages(STAGES, DEPTH, num_layers)
        return tuple(stage + 1 for stage in self.stages)

    def watched_layers(self, num_layers: int) -> Sequence[int]:
        """Return the layer before each pruning step."""
        return tuple(layer - 1 for layer in self.pruning_layers(num_layers))

    def schedule(self, num_kept: int, total: int, num_layers: int) -> list[int]:
        """Return the number of visual tokens per layer, of `total` that reached the decoder."""
        stages = self.pruning_layers(num_layers)
        present = [total, *shrink_evenly(total, Fraction(num_kept, total), len(stages))]
        return count_by_layer(present, stages, num_layers)

    def choose(self, view: View) -> Choice:
        """Keep the key set, then what the text attends to most."""
        check_text(view)
        encoded = view.vision
        if encoded is None or encoded.classes == 0:
            raise InputError(
                "MustDrop needs the attention of the vision encoder's class token, but this vision "
                "encoder has none: use a model with a CLIP vision encoder, or another method."
            )
        if START not in view.notes:
            view.notes[START] = self._build_start(view, encoded)
        start: _Start = view.notes[START]
        rows = view.attention(view.layer_idx - 1, view.text_positions).mean(1)
        sums, mask = rows.sum(1), view.mask
        index = encoded.index
        key = start.key.to(rows.device)[index.clamp(min=0)] & (index >= 0) & mask
        allowed = (key | self._mask_above_thresholds(rows, sums)) & mask
        orders = choose_best(sums, mask, view.mask.sum(-1).tolist())
        kept = []
        for sample, by_attention in enumerate(orders):
            limit = self.schedule(start.num_kept[sample], start.present[sample], view.num_layers)
            key_first = rank_descending(key[sample, by_attention])
            order = by_attention[key_first]
            passing = order[allowed[sample, order]]
            kept.append(passing[: limit[view.layer_idx]] if len(passing) else order[:1])
        return Choice(kept, details=[{"key_tokens": int(mask.sum())} for mask in key])

    def _mask_above_thresholds(self, rows: Tensor, sums: Tensor) -> Tensor:
        """Return the tokens that the thresholds keep, ``(b, n)`` bool; all without thresholds."""
        if self.global_threshold is None or self.individual_threshold is None:
            return torch.ones_like(sums, dtype=torch.bool)
        least = self.global_threshold * sums.sum(-1, keepdim=True)
        return (sums >= least) | (rows.amax(1) >= self.individual_threshold)

    def _build_start(self, view: View, encoded: VisionOutputs) -> _Start:
        """Count the merged tokens, which `view.total` does not."""
        present: list[int] = view.mask.sum(-1).tolist()
        num_kept = []
        for count, total, others in zip(
            present, view.total.tolist(), view.others.tolist(), strict=True
        ):
            method = replace(self, budget=tokens_to_keep(self.budget, total))
            num_kept += method.count_kept(view, [count], [others])
        return _Start(present, num_kept, select_key_set(encoded, self.key_share))


def select_key_set(encoded: VisionOutputs, fraction: float) -> Tensor:
    """Select what the class token attends to most in the last block, ``(c * t,)`` bool.

    Tokens merged in the vision encoder are there as copies, with equal keys; copies count as one
    token. `fraction` is of the tokens of each crop without class tokens, rounded up.
    """
    block, classes = encoded.num_blocks - 1, encoded.classes
    with keep_precision(encoded.features.device):
        keys = encoded.keys(block).float()
        products = compute_class_logits(encoded.queries(block), keys, encoded.scaling)
        copies = [_group_copies(own) for own in keys]
        weights = torch.stack(
            [_weigh(own, *pair) for own, pair in zip(products, copies, strict=True)]
        )
        # With a spatial merge, the attention is that to the visual tokens.
        cells = encoded.fold(weights[:, classes:])
        if cells.shape[1] != weights.shape[1] - classes:
            folded = encoded.fold(keys[:, :, classes:].transpose(-1, -2)).transpose(-1, -2)
            both = zip(keys[:, :, :classes], folded, strict=True)
            copies = [_group_copies(torch.cat(parts, 1)) for parts in both]
            weights = torch.cat([weights[:, :classes], cells], 1)
        marked = [
            _mark_most(own, *pair, classes, fraction)
            for own, pair in zip(weights, copies, strict=True)
        ]
    return torch.cat(marked)


def _weigh(products: Tensor, first: Tensor, leader: Tensor) -> Tensor:
    """Return the class token's attention to each token ``(p,)``; a copy has that of the first."""
    return products.masked_fill(~first, -torch.inf).softmax(-1).mean(0)[leader]


def _mark_most(
    weights: Tensor, first: Tensor, leader: Tensor, classes: int, fraction: float
) -> Tensor:
    """Mark the tokens with the largest weights, ``(t,)`` bool; copies are chosen together."""
    first = first.clone()
    first[:classes] = False
    # Without the rounding error of a decimal fraction: 0.08 * 25 is 2.
    count = math.ceil(round(fraction * int(first.sum()), 9))
    (chosen,) = choose_best(weights.unsqueeze(0), first.unsqueeze(0), [count])
    key = torch.zeros_like(first)
    key[chosen] = True
    return key[leader]


def _group_copies(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return which ``(heads, t, d)`` keys are the first of equal ones, and the first of each."""
    index = torch.arange(keys.shape[1], device=keys.device)
    if keys.device.type == "cpu" and _are_different(keys):
        return torch.ones_like(index, dtype=torch.bool), index
    _, group = keys.transpose(0, 1).flatten(1).unique(dim=0, return_inverse=True)
    first = torch.full_like(index, len(group)).scatter_reduce(0, group, index, "amin")
    leader = first[group]
    return leader == index, leader


def _are_different(keys: Tensor) -> bool:
    """Return whether a hash of each token proves that there are no copies, without a sort."""
    # Integers, whose sums do not depend on the order; adding zero makes -0.0 equal to 0.0.
    bits = (keys[:, :, 0] + 0.0).view(torch.int32).long()
    mark = (bits * torch.arange(1, 2 * len(bits), 2).unsqueeze(-1)).sum(0).sort().values
    return bool((mark[1:] > mark[:-1]).all())


def cut_windows(grid: tuple[int, int], side: int) -> Tensor:
    """Return the tokens of each window, ``(w, side * side)`` int64, in raster order.

    Windows of `side` by `side` tokens do not overlap. Remaining rows and columns at the lower and
    right border belong to none.
    """
    windows = _cut(torch.arange(grid[0] * grid[1]).unsqueeze(0), grid, side)
    return windows.transpose(2, 3).reshape(-1, side * side)


def _cut(values: Tensor, grid: tuple[int, int], side: int) -> Tensor:
    """View ``(c, rows * columns, ...)`` as ``(c, down, side, across, side, ...)`` windows."""
    down, across = grid[0] // side, grid[1] // side
    inside = values.unflatten(1, grid)[:, : down * side, : across * side]
    windows: Tensor = inside.unflatten(2, (across, side)).unflatten(1, (down, side))
    return windows


def compare_in_windows(tokens: Tensor, grid: tuple[int, int], side: int) -> Tensor:
    """Compute the mean cosine of all pairs of tokens ``(c, n, d)`` per window, ``(c, w)`` float32.

    Rounded to steps of 2**-20: windows of copies have exactly 1.
    """
    with keep_precision(tokens.device):
        values = tokens.detach().float()
        norm = torch.linalg.vector_norm(values, dim=-1, keepdim=True)
        windows = _cut(values, grid, side)
        scale = _cut(1 / norm.clamp(min=_LEAST_NORM), grid, side)
        sums = torch.zeros_like(windows[:, :, 0, :, 0])
        for row, column in product(range(side), repeat=2):
            sums.addcmul_(windows[:, :, row, :, column], scale[:, :, row, :, column])
        # The square of a sum is the sum of all products, those with itself included: 0 or 1.
        own = _cut((norm > _LEAST_NORM).float(), grid, side).sum((2, 4))
        count = side * side
        pairs: Tensor = sums.square_().sum(-1, keepdim=True) - own
        mean = (pairs / (count * (count - 1))).flatten(1)
        return mean.mul_(_COSINE_STEPS).round_().div_(_COSINE_STEPS)


def merge_windows(
    tokens: Tensor, grid: tuple[int, int], side: int, threshold: float
) -> tuple[Tensor, Tensor]:
    """Replace windows of similar tokens ``(c, rows * columns, d)`` by their means.

    Every crop merges equally many windows, its most similar ones, ties by the lowest index: as many
    as reach the threshold in the crop with the fewest.

    Returns the new token ``(c, rows * columns)`` of each token, and the new tokens ``(c, m, d)`` in
    raster order of their first members; `tokens` itself if nothing is merged.
    """
    similarity = compare_in_windows(tokens, grid, side)
    merging = int((similarity >= threshold).sum(-1).min())
    if merging == 0 and not similarity.isnan().any():
        return torch.arange(tokens.shape[1], device=tokens.device).repeat(len(tokens), 1), tokens
    crops = torch.arange(len(tokens), device=tokens.device).unsqueeze(-1)
    chosen = torch.stack(
        choose_best(
            similarity, torch.ones_like(similarity, dtype=torch.bool), [merging] * len(tokens)
        )
    )
    joined = cut_windows(grid, side).to(tokens.device)[chosen]  # (c, merging, side * side)
    first = joined[..., 0]
    means = tokens.float()[crops.unsqueeze(-1), joined].mean(2).to(tokens.dtype)
    values = tokens.index_put((crops, first), means)
    leader = torch.arange(tokens.shape[1], device=tokens.device).repeat(len(tokens), 1)
    leader[crops.unsqueeze(-1), joined] = first.unsqueeze(-1).expand_as(joined)
    leads = leader == torch.arange(tokens.shape[1], device=tokens.device)
    groups = (leads.cumsum(-1) - 1).gather(-1, leader)
    return groups, values[leads].unflatten(0, (len(tokens), -1))
