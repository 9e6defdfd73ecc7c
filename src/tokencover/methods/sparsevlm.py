"""SparseVLM (ICML 2025, arXiv 2410.04417), version 1.5: fixed token counts.

Place: before the decoder to choose the raters, then after decoder blocks 2, 6 and 15 of 32.
Signal: the attention that rater words give the visual tokens in those blocks.

Where the paper and the released code differ, this follows the code: a cluster is the mean of its
members, not their sum. The code clusters with unseeded noise; here ties go to the lowest index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from tokencover.budget import Budget, LayerCost, PublishedMode, round_half_up, tokens_left
from tokencover.covering import keep_precision, rank_descending
from tokencover.errors import InputError
from tokencover.methods._shared.decoder_stages import (
    check_stages,
    check_text,
    count_by_block,
    scale_stages,
)
from tokencover.methods._shared.density_clusters import (
    RecyclingPlan,
    average_clusters,
    find_density_peaks,
)
from tokencover.methods._shared.ranking import choose_best
from tokencover.methods.base import BudgetedMethod, Card, Choice, Positions, View
from tokencover.methods.registry import register_method

TOKEN_LISTS = {
    192: (300, 200, 110),
    128: (303, 110, 36),
    96: (238, 48, 26),
    64: (66, 30, 17),
}
"""Tokens kept at the three stages, clusters apart, for each published mean over the outputs of 32
blocks, of 576 tokens."""
LISTED_TOTAL = 576
STAGES, DEPTH = (3, 7, 16), 32
"""The published places: before these blocks of so many."""
RATERS = "sparsevlm.raters"


@register_method
@dataclass(frozen=True)
class SparseVLM(BudgetedMethod):
    """Keep what rater words look at, in three stages, and recycle some of the rest as clusters.

    Before the decoder the words that visual tokens resemble more than the average word become
    raters. At each stage the visual tokens with the highest mean attention from the raters stay; of
    the others the best 30 % are clustered, and the clusters' means stand after the kept tokens.

    Parameters
    ----------
    budget : int or float
        K, for `budget_mode` "exact" the tokens left in the end, clusters included. The four
        published lists are K = 113, 39, 27 and 18 of 576. They are known as "192", "128", "96" and
        "64", means over what 32 blocks put out; the blocks work on 206.5, 145.4, 114.1 and 82.25 on
        average, and that is what `budget_mode` "layer_mean" counts. So "layer_mean" with K = 192
        keeps less than the list of that name: exactly what a fair comparison needs.
    positions : "reindex" or "original"
        "reindex", as published: numbered anew, clusters after all kept tokens. With "original"
        every token stays where it is, a cluster where its centre was.
    stages : tuple of int, optional
        After which decoder blocks to prune, counted from 0. By default the published 2, 6 and 15 of
        32, at the same shares of the depth in other decoders. With fewer than three the last leaves
        K; from the fourth on a stage prunes only with `adaptive`.
    adaptive : tuple of float, optional
        (scale, bias) of version 1.0: a stage keeps ``int(rank * scale + bias)`` tokens and its
        clusters, with the rank of the matrix of raters and visual tokens. The budget is then a
        ceiling at each stage; with 1.0 there is none.

    Notes
    -----
    Between the published lists, the counts after the first two stages are linear in the number left
    in the end, as shares of all tokens; above them they go to everything, below them to nothing.
    With several pictures they form one pool, and clusters stand after the last of them.
    """

    name: ClassVar[str] = "sparsevlm"
    published_mode: ClassVar[PublishedMode] = "layer_mean"
    card: ClassVar[Card] = Card(
        title="SparseVLM",
        year=2024,
        objective="prompt",
        pruning_point="after 3, 7 and 16 of 32 decoder blocks",
        signal="attention of rater words; the best of the rest become clusters",
        paper="2410.04417",
        needs=("text after the picture",),
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
        if self.stages is not None:
            check_stages(self.stages)
        if self.adaptive is not None and (len(self.adaptive) != 2 or self.adaptive[0] <= 0):
            raise InputError(
                f"adaptive must be (scale, bias) with a scale above 0, got {self.adaptive!r}."
            )

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        """Before the decoder, to choose the raters, and at each stage."""
        return (0, *self._find_stages(num_layers))

    def watched_layers(self, num_layers: int) -> Sequence[int]:
        """The block before each stage."""
        return tuple(block - 1 for block in self._find_stages(num_layers))

    def schedule(self, num_kept: int, total: int, num_layers: int) -> list[int]:
        """The visual tokens each decoder block works on, clusters included.

        One of the published lists has three tokens more after the first stage than the next larger
        one, so this may fall there by one when `num_kept` grows; the sum over the published stages
        never falls.
        """
        return _make_schedule(num_kept, total, self._find_stages(num_layers), num_layers)

    def num_kept(self, view: View) -> list[int]:
        """How many visual tokens of each sample must be left in the end.

        The published means are over what blocks put out; a stage's block puts out fewer tokens than
        it works on.
        """
        if self.budget_mode != "published":
            return super().num_kept(view)

        stages = self._find_stages(view.num_layers)
        return [
            _find_left_as_published(self.budget, total, stages, view.num_layers)
            for total in view.total.tolist()
        ]

    def choose(self, view: View) -> Choice:
        """The raters before the decoder, and what they look at after each stage's block."""
        present = view.mask.sum(-1).tolist()
        if view.layer_idx == 0:
            view.notes[RATERS] = find_raters(view)
            return Choice([torch.arange(count, device=view.mask.device) for count in present])
        who = view.notes[RATERS]
        rows = view.attention(view.layer_idx - 1, who).mean(1)
        asked = (who >= 0).to(rows.device)
        scores = rows.sum(1) / asked.sum(-1, keepdim=True)
        plans = [
            self._make_plan(rows[sample, asked[sample], :count], count, ceiling)
            for sample, (count, ceiling) in enumerate(
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
        states = torch.empty_like(view.hidden_states)  # what is not kept is not written
        for sample, (slot, content) in enumerate(zip(slots, contents, strict=True)):
            states[sample].index_copy_(0, slot, content)
        return Choice(slots, states, sources, [{"clusters": plan.clusters} for plan in plans])

    def _find_stages(self, depth: int) -> tuple[int, ...]:
        if self.stages is None:
            return scale_stages(STAGES, DEPTH, depth)
        return tuple(stage + 1 for stage in self.stages)

    def _make_plan(self, rows: Tensor, present: int, ceiling: int) -> RecyclingPlan:
        """From the head means ``(raters, present)`` of one sample, and what the budget allows."""
        if self.adaptive is not None:
            scale, bias = self.adaptive
            rank = int(torch.linalg.matrix_rank(rows))
            kept = max(1, min(int(rank * scale + bias), present - 1))
            plan = RecyclingPlan.for_kept(present if rank == present else kept, present)
            if plan.left <= ceiling:
                return plan
        return RecyclingPlan.for_left(ceiling, present)


def find_raters(view: View) -> Tensor:
    """Places of the rater words.

    With M the softmax over words of the products of visual tokens and words, the raters are the
    words whose mean over the visual tokens is above the average word's. If all words are alike, all
    are raters.

    Returns
    -------
    Tensor
        ``(b, q)`` int64, places in the whole sequence; -1 where a sample has fewer raters.
    """
    check_text(view)
    with keep_precision(view.hidden_states.device):
        # Words first, which takes half the time.
        products = view.text.float() @ view.hidden_states.float().transpose(-1, -2)
        words = view.text_mask.to(products.device)
        weights = products.masked_fill(~words.unsqueeze(-1), -torch.inf).softmax(1)
        tokens = view.mask.to(products.device).unsqueeze(1)
        mean = (weights * tokens).sum(-1) / tokens.sum(-1)
        average = mean.sum(-1, keepdim=True) / words.sum(-1, keepdim=True)
        chosen = (mean > average) & words
        chosen = torch.where(chosen.any(-1, keepdim=True), chosen, words)
    chosen = chosen.to(view.text_positions.device)
    order = rank_descending(chosen)
    places = view.text_positions.masked_fill(~chosen, -1).gather(-1, order)
    return places[:, : int(chosen.sum(-1).max())]


def _make_schedule(left: int, total: int, stages: Sequence[int], depth: int) -> list[int]:
    present = [total, *_count_after_stages(left, total, len(stages))]
    return count_by_block(present, stages, depth)


@lru_cache(maxsize=256, typed=True)  # a budget of 1 is a token, one of 1.0 all of them
def _find_left_as_published(budget: Budget, total: int, stages: tuple[int, ...], depth: int) -> int:
    """How many are left in the end for a mean over what blocks put out."""
    return tokens_left(
        budget,
        SparseVLM.published_mode,
        total=total,
        others=0,  # a mean counts visual tokens alone
        schedule=lambda left: [*_make_schedule(left, total, stages, depth)[1:], left],
        cost=LayerCost(linear=1, quadratic=0),
    )


@lru_cache(maxsize=4096)
def _count_after_stages(left: int, total: int, stages: int) -> tuple[int, ...]:
    """Tokens after each stage if `left` are left after the last."""
    share = Fraction(left, total)
    between = [
        round_half_up(_interpolate(share, stage) * total) for stage in range(min(stages - 1, 2))
    ]
    return (*between, *[left] * (stages - len(between)))


def _interpolate(share: Fraction, stage: int) -> Fraction:
    """The share of all tokens after an earlier stage, for the share left in the end."""
    for (low, before), (high, after) in pairwise(_KNOTS):
        if share <= high:
            weight = (share - low) / (high - low)
            return before[stage] + weight * (after[stage] - before[stage])
    raise InputError(f"a share of {share} is left of all tokens: it must be at most 1.")


def _follow_list(kept: Sequence[int]) -> list[int]:
    """Tokens after each stage of a published list, clusters included."""
    present = [LISTED_TOTAL]
    for count in kept:
        present.append(RecyclingPlan.for_kept(count, present[-1]).left)
    return present[1:]


def _make_knots() -> list[tuple[Fraction, tuple[Fraction, Fraction]]]:
    """Shares of all tokens: in the end, and after the first and second stage."""
    lists = [[0, 0, 0], *map(_follow_list, TOKEN_LISTS.values()), [LISTED_TOTAL] * 3]
    first, second, end = (
        [Fraction(count, LISTED_TOTAL) for count in stage] for stage in zip(*lists, strict=True)
    )
    return sorted(zip(end, zip(first, second, strict=True), strict=True))


_KNOTS = _make_knots()


def _recycle(
    states: Tensor, order: Tensor, plan: RecyclingPlan, present: int, *, in_place: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The slots of one sample that stay, ascending, their new states, and whose states they are.

    Parameters
    ----------
    states : Tensor
        ``(n, d)``.
    order : Tensor
        Tokens to keep and then tokens to recycle, best first.
    plan : RecyclingPlan
        How many of each.
    present : int
        How many of the n tokens exist.
    in_place : bool
        Whether a cluster takes the slot of its centre; else the slots of the last dropped tokens
        are used too, and hold the kept tokens in their order and then the clusters.
    """
    order = order.to(states.device)
    kept = order[: plan.kept].sort().values
    contents = states.index_select(0, kept)
    if plan.clusters == 0:
        return kept, contents, kept
    recycled = order[plan.kept :].sort().values
    points = states.index_select(0, recycled)
    centres, owner = find_density_peaks(points, plan.clusters)
    means = average_clusters(points, owner, plan.clusters)
    sources = torch.cat([kept, recycled[centres]])
    contents = torch.cat([contents, means])
    if in_place:
        slots, place = sources.sort()
        return slots, contents[place], slots
    dropped = torch.ones(present, dtype=torch.bool, device=states.device)
    dropped[kept] = False
    freed = dropped.nonzero().squeeze(-1)[-plan.clusters :]
    return torch.cat([kept, freed]).sort().values, contents, sources
