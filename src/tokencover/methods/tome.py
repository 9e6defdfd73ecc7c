"""ToMe (ICLR 2023): Token Merging."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tokencover.methods._shared.vision_merging import (
    VisionMergingMethod,
    check_numbers,
    keep_unmerged,
    limit_to_half,
    match_pairs,
    remove_evenly,
)
from tokencover.methods.base import Card, VisionMerge, VisionView
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class ToMe(VisionMergingMethod):
    """Merge pairs of similar tokens in every vision-encoder block.

    https://arxiv.org/abs/2210.09461. In each block the tokens at even indices are matched to the
    most similar token at an odd index, by the cosine of their keys (mean over heads). The r best
    pairs become one token each, the mean of all original tokens it represents, and later blocks
    weight it by their number. Class tokens are never merged.

    The paper sets r; here r follows from K and differs by at most one between blocks. The paper's
    order mixes rows and columns; before the decoder tokens are ordered by the first token each
    represents.

    Parameters
    ----------
    budget : int or float
        K, tokens per image or fraction of each crop; see `VisionMergingMethod` for this,
        `budget_mode` and `positions`. A block removes at most half of its tokens, so K has a lower
        limit.
    inflect : float
        Between -1 and 1: with r on average the first block merges about r (1 - inflect) pairs, the
        last r (1 + inflect). 0 is the paper's constant schedule, -1 its decreasing one.
    """

    name: ClassVar[str] = "tome"
    card: ClassVar[Card] = Card(
        title="ToMe",
        year=2023,
        objective="visual",
        pruning_point="in every block of the vision encoder",
        signal="similarity of keys",
        paper="2210.09461",
        needs=("vision merging",),
        departs=(
            "r follows from K, so exactly K remain; before the decoder tokens are ordered by the "
            "first token that each represents"
        ),
    )
    proportional_attention = True

    setting_limits: ClassVar = {"inflect": (-1, 1)}

    inflect: float = 0.0

    def vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        """Return every block up to the feature block."""
        return range(feature_block + 1)

    def plan_counts(self, total: int, num_kept: int, blocks: int) -> Sequence[int]:
        """See `VisionMergingMethod.plan_counts`; a block merges at most half of its tokens."""
        return limit_to_half(remove_evenly(total, num_kept, blocks, self.inflect), total)

    def merge_in_vision_encoder(self, view: VisionView) -> VisionMerge:
        """Merge by bipartite soft matching of the keys."""
        remove = self.count_to_remove(view)
        if remove == 0:
            return keep_unmerged(view)
        metric = view.keys().float().mean(1)
        check_numbers(metric, view)
        matching = match_pairs(metric, remove, view.classes)
        return VisionMerge(matching.groups, matching.average(view.hidden_states, view.sizes))
