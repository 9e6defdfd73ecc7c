"""SparseVLM (ICML 2025), version 1.5: fixed token counts.

Where paper and released code differ, this follows the code: a cluster is the mean of its members,
not their sum. The code clusters with unseeded noise; here ties go to the lowest index.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from tokencover.budget import Budget, LayerCost, PublishedMode, round_half_up, tokens_left
from tokencover.covering import (
    compute_pairwise_sq_distances,
    keep_precision,
    rank_descending,
    select_smallest,
    to_float32,
)
from tokencover.errors import InputError
from tokencover.methods._shared.decoder import (
    MethodInStages,
    check_text,
    count_by_layer,
    scale_stages,
)
from tokencover.methods._shared.ranking import choose_best
from tokencover.methods.base import Card, Choice, Positions, View
from tokencover.methods.registry import register_method

TOKEN_LISTS = {
    192: (300, 200, 110),
    128: (303, 110, 36),
    96: (238, 48, 26),
    64: (66, 30, 17),
}
"""Tokens kept of 576 at the three stages, for each published mean over the outputs of 32 layers."""
LISTED_TOTAL = 576
STAGES, DEPTH = (3, 7, 16), 32
"""The published stages: before these layers of so many."""
RATERS = "sparsevlm.raters"
_DISTANCE_STEPS = 2.0**25
"""Grid steps of the longest vector; float64 adds products of such whole numbers exactly."""


@dataclass(frozen=True, slots=True)
class RecyclingPlan:
    """How many visual tokens are kept and recycled at one stage, and into how many clusters."""

    kept: int
    recycled: int
    clusters: int

    @property
    def total(self) -> int:
        """Tokens that remain."""
        return self.kept + self.clusters

    @classmethod
    def for_kept(cls, kept: int, present: int) -> RecyclingPlan:
        """Keep so many: of p dropped ones ``q = int(0.3 p) + 1`` make ``int(q / 10) + 1``."""
        if kept >= present:
            return cls(present, 0, 0)
        recycled = 3 * (present - kept) // 10 + 1
        return cls(kept, recycled, recycled // 10 + 1)

    @classmethod
    def for_total(cls, total: int, present: int) -> RecyclingPlan:
        """Keep as many as possible, at least one, so that `total` tokens and clusters remain."""
        if total >= present:
            return cls(present, 0, 0)
        for kept in range(total - 1, 0, -1):
            plan = cls.for_kept(kept, present)
            if plan.total == total:
                return plan
        plan = cls.for_kept(1, present)
        return cls(1, plan.recycled if total > 1 else 0, total - 1)


@register_method
@dataclass(frozen=True)
class SparseVLM(MethodInStages):
    """Keep what the raters attend to, in three stages, and merge some of the rest into clusters.

    https://arxiv.org/abs/2410.04417. Before the decoder, the text tokens that visual tokens
    resemble more than the average text token become raters. At each stage the visual tokens with
    the highest mean attention from the raters stay; the best 30 % of the others are clustered, and
    the clusters' means follow the kept tokens. Between the published lists, the counts after the
    first two stages are linear in the final count. Several images form one pool.

    Parameters
    ----------
    budget : int or float
        K, for `budget_mode` "exact" the tokens that remain at the end, clusters included. The four
        published lists are K = 113, 39, 27 and 18 of 576. They are known as "192", "128", "96" and
        "64", means over the outputs of 32 layers; the layers process 206.5, 145.4, 114.1 and 82.25
        on average, which is what `budget_mode` "layer_mean" counts.
    positions : "reindex" or "original"
        "reindex", as published: renumbered, clusters after all kept tokens. With "original" every
        token keeps its position, a cluster that of its center.
    stages : tuple of int, optional
        After which decoder layers to prune, counted from 0. By default the published 2, 6 and 15 of
        32, at the same fractions of the depth in other decoders. With fewer than three the last
        leaves K; from the fourth on a stage prunes only with `adaptive`.
    adaptive : tuple of float, optional
        (scale, bias) of version 1.0: a stage keeps ``int(rank * scale + bias)`` tokens and its
        clusters, with the rank of the matrix of raters and visual tokens. The budget is then only
        an upper limit at each stage, and 1.0 is no limit.
    """

    name: ClassVar[str] = "sparsevlm"
    published_mode: ClassVar[PublishedMode] = "layer_mean"
    card: ClassVar[Card] = Card(
        title="SparseVLM",
        year=2024,
        objective="prompt",
        pruning_point="after 3, 7 and 16 of 32 decoder layers",
        signal="attention of selected text tokens; the best of the rest become clusters",
        paper="2410.04417",
        needs=("text after the image",),
        departs=(
            "fixed counts between and beyond the published lists are interpolated; "
            "clustering has no random noise"
        ),
    )
    reads_prompt = False
    merges = True
    drops_newlines = True

    positions: Positions = field(default="reindex", kw_only=True)
    stages: tuple[int, ...] | None = None
    adaptive: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.adaptive is not None and (len(self.adaptive) != 2 or self.adaptive[0] <= 0):
            raise InputError(
                f"adaptive must be (scale, bias) with a scale above 0, got {self.adaptive!r}."
            )

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        """Return layer 0, to select the raters, and the layer of each stage."""
        return (0, *self._resolve_stages(num_layers))

    def watched_layers(self, num_layers: int) -> Sequence[int]:
        """Return the layer before each stage."""
        return tuple(layer - 1 for layer in self._resolve_stages(num_layers))

    def schedule(self, num_kept: int, total: int, num_layers: int) -> list[int]:
        """Return the number of visual tokens per layer, clusters included.

        A published list has three tokens more after the first stage than the next larger one, so a
        count may fall by one there when `num_kept` grows; the sum never falls.
        """
        return _build_schedule(num_kept, total, self._resolve_stages(num_layers), num_layers)

    def num_kept(self, view: View) -> list[int]:
        """Return the final counts; the published means are over outputs of layers, not inputs."""
        if self.budget_mode != "published":
            return super().num_kept(view)

        stages = self._resolve_stages(view.num_layers)
        return [
            _compute_published_count(self.budget, total, stages, view.num_layers)
            for total in view.total.tolist()
        ]

    def choose(self, view: View) -> Choice:
        """Select the raters before the decoder, and what they attend to at each stage."""
        present = view.mask.sum(-1).tolist()
        if view.layer_idx == 0:
            view.notes[RATERS] = select_raters(view)
            return Choice([torch.arange(count, device=view.mask.device) for count in present])
        raters = view.notes[RATERS]
        rows = view.attention(view.layer_idx - 1, raters).mean(1)
        exists = (raters >= 0).to(rows.device)
        scores = rows.sum(1) / exists.sum(-1, keepdim=True)
        plans = [
            self._build_plan(rows[sample, exists[sample], :count], count, limit)
            for sample, (count, limit) in enumerate(
                zip(present, self.count_here(view), strict=True)
            )
        ]
        wanted = [plan.kept + plan.recycled for plan in plans]
        chosen = choose_best(scores, view.mask, wanted)
        samples = [
            _recycle(states, order, plan, count, in_place=self.positions == "original")
            for states, order, plan, count in zip(
                view.hidden_states, chosen, plans, present, strict=True
            )
        ]
        slots, contents, sources = zip(*samples, strict=True)
        states = torch.empty_like(view.hidden_states)  # only kept tokens are written
        for sample, (slot, content) in enumerate(zip(slots, contents, strict=True)):
            states[sample].index_copy_(0, slot, content)
        return Choice(slots, states, sources, [{"clusters": plan.clusters} for plan in plans])

    def _resolve_stages(self, depth: int) -> tuple[int, ...]:
        if self.stages is None:
            return scale_stages(STAGES, DEPTH, depth)
        return tuple(stage + 1 for stage in self.stages)

    def _build_plan(self, rows: Tensor, present: int, limit: int) -> RecyclingPlan:
        """Build a sample's plan from head means ``(raters, present)`` and the budget's limit."""
        if self.adaptive is not None:
            scale, bias = self.adaptive
            rank = int(torch.linalg.matrix_rank(rows))
            kept = max(1, min(int(rank * scale + bias), present - 1))
            plan = RecyclingPlan.for_kept(present if rank == present else kept, present)
            if plan.total <= limit:
                return plan
        return RecyclingPlan.for_total(limit, present)


def select_raters(view: View) -> Tensor:
    """Return the sequence positions of the raters, ``(b, q)`` int64; -1 for padding.

    With M the softmax over text tokens of their products with visual tokens, the raters are those
    whose mean over the visual tokens is above the average. If all are equal, all are raters.
    """
    check_text(view)
    with keep_precision(view.hidden_states.device):
        # Text tokens first, which takes half the time.
        products = view.text.float() @ view.hidden_states.float().transpose(-1, -2)
        exists = view.text_mask.to(products.device)
        weights = products.masked_fill(~exists.unsqueeze(-1), -torch.inf).softmax(1)
        tokens = view.mask.to(products.device).unsqueeze(1)
        mean = (weights * tokens).sum(-1) / tokens.sum(-1)
        average = mean.sum(-1, keepdim=True) / exists.sum(-1, keepdim=True)
        chosen = (mean > average) & exists
        chosen = torch.where(chosen.any(-1, keepdim=True), chosen, exists)
    chosen = chosen.to(view.text_positions.device)
    order = rank_descending(chosen)
    positions = view.text_positions.masked_fill(~chosen, -1).gather(-1, order)
    return positions[:, : int(chosen.sum(-1).max())]


def _build_schedule(num_kept: int, total: int, stages: Sequence[int], depth: int) -> list[int]:
    present = [total, *_count_after_stages(num_kept, total, len(stages))]
    return count_by_layer(present, stages, depth)


@lru_cache(maxsize=256, typed=True)  # budget=1 is one token, budget=1.0 all of them
def _compute_published_count(
    budget: Budget, total: int, stages: tuple[int, ...], depth: int
) -> int:
    """Return the final count for a mean over the outputs of layers."""
    return tokens_left(
        budget,
        SparseVLM.published_mode,
        total=total,
        others=0,  # a mean counts visual tokens alone
        schedule=lambda kept: [*_build_schedule(kept, total, stages, depth)[1:], kept],
        cost=LayerCost(linear=1, quadratic=0),
    )


@lru_cache(maxsize=4096)
def _count_after_stages(num_kept: int, total: int, stages: int) -> tuple[int, ...]:
    """Return the tokens after each stage if `num_kept` remain after the last."""
    fraction = Fraction(num_kept, total)
    between = [
        round_half_up(_interpolate(fraction, stage) * total) for stage in range(min(stages - 1, 2))
    ]
    return (*between, *[num_kept] * (stages - len(between)))


def _interpolate(fraction: Fraction, stage: int) -> Fraction:
    """Return the fraction of all tokens after an earlier stage, for the fraction at the end."""
    for (low, before), (high, after) in pairwise(_KNOTS):
        if fraction <= high:
            weight = (fraction - low) / (high - low)
            return before[stage] + weight * (after[stage] - before[stage])
    raise InputError(f"a fraction of {fraction} of all tokens remains: it must be at most 1.")


def _follow_list(kept: Sequence[int]) -> list[int]:
    """Return the tokens after each stage of a published list, clusters included."""
    present = [LISTED_TOTAL]
    for count in kept:
        present.append(RecyclingPlan.for_kept(count, present[-1]).total)
    return present[1:]


def _build_knots() -> list[tuple[Fraction, tuple[Fraction, Fraction]]]:
    """Return fractions of all tokens: at the end, and after the first and second stage."""
    lists = [[0, 0, 0], *map(_follow_list, TOKEN_LISTS.values()), [LISTED_TOTAL] * 3]
    first, second, end = (
        [Fraction(count, LISTED_TOTAL) for count in stage] for stage in zip(*lists, strict=True)
    )
    return sorted(zip(end, zip(first, second, strict=True), strict=True))


_KNOTS = _build_knots()


def _recycle(
    states: Tensor, order: Tensor, plan: RecyclingPlan, present: int, *, in_place: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the slots of a sample that stay, ascending, their hidden states, and their sources.

    `order` contains the indices, among the `present` tokens, to keep and then to recycle, best
    first. With `in_place` a cluster replaces its center; otherwise the slots of the last dropped
    tokens are used too, and contain the kept tokens in their order and then the clusters.
    """
    order = order.to(states.device)
    kept = order[: plan.kept].sort().values
    contents = states.index_select(0, kept)
    if plan.clusters == 0:
        return kept, contents, kept
    recycled = order[plan.kept :].sort().values
    points = states.index_select(0, recycled)
    centers, owner = cluster_by_density(points, plan.clusters)
    means = average_clusters(points, owner, plan.clusters)
    sources = torch.cat([kept, recycled[centers]])
    contents = torch.cat([contents, means])
    if in_place:
        slots, order = sources.sort()
        return slots, contents[order], slots
    dropped = torch.ones(present, dtype=torch.bool, device=states.device)
    dropped[kept] = False
    freed = dropped.nonzero().squeeze(-1)[-plan.clusters :]
    return torch.cat([kept, freed]).sort().values, contents, sources


def cluster_by_density(points: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Cluster points ``(q, d)`` around those that are dense and far from any denser point.

    With distances ``d_ij = |x_i - x_j| / sqrt(width)``, a point's density is ``rho_i = exp(-mean of
    d_ij^2)`` over its `count` nearest points, itself included; ``delta_i`` is the distance to the
    nearest denser point (of equals the lowest index is denser), or the largest distance. Returns
    the `count` points with the largest ``rho delta``, and the nearest of them for each point
    ``(q,)``.
    """
    with keep_precision(points.device):
        squares = _compute_sq_distances(to_float32(points))
        spread = squares.topk(count, dim=-1, largest=False).values.mean(-1)
        index = torch.arange(len(points), device=squares.device)
        tied = spread == spread.unsqueeze(-1)
        denser = (spread < spread.unsqueeze(-1)) | (tied & (index < index.unsqueeze(-1)))
        delta = squares.masked_fill(~denser, math.inf).amin(-1).clamp(max=squares.max())
        # The logarithm of rho delta has the same order, and does not vanish for distant points.
        centers = rank_descending(delta.log() / 2 - spread)[:count]
        owner = select_smallest(squares[:, centers])
        owner[centers] = torch.arange(count, device=owner.device)
    return centers.to(points.device), owner.to(points.device)


def _compute_sq_distances(points: Tensor) -> Tensor:
    """Compute ``d_ij`` squared, ``(q, q)`` float64, on a grid: exactly 0 between copies."""
    shifted = points - points[:1]
    longest = float(torch.linalg.vector_norm(shifted, dim=-1).max())
    # A power of two: dividing by it is exact.
    step = 2.0 ** math.frexp(longest)[1] / _DISTANCE_STEPS
    grid = shifted.div_(step).round_().double()
    return compute_pairwise_sq_distances(grid).mul_(step * step / points.shape[-1])


def average_clusters(points: Tensor, owner: Tensor, count: int) -> Tensor:
    """Compute the mean of each cluster of ``(q, d)``, ``(count, d)``, summed in float32."""
    members = (owner == torch.arange(count, device=owner.device).unsqueeze(-1)).float()
    with torch.autocast(points.device.type, enabled=False):
        means = members @ points.float() / members.sum(-1, keepdim=True)
    return means.to(points.dtype)
