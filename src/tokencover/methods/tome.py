"""ToMe: Token Merging (ICLR 2023).

Place: inside every vision tower block up to the one whose output becomes visual tokens, between
attention and feed-forward network. Signal: similarity of the attention's keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tokencover.errors import InputError
from tokencover.methods._shared.bipartite_matching import match_pairs
from tokencover.methods._shared.tower_method import (
    TowerMethod,
    check_numbers,
    leave_unchanged,
    limit_to_half,
    remove_evenly,
)
from tokencover.methods.base import Card, VisionMerge, VisionView
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class ToMe(TowerMethod):
    """Merge pairs of similar tokens in every tower block.

    In each block the tokens at even places look for the most similar token at an odd place, by the
    cosine of their keys (mean over heads). The r best pairs become one token each, the mean of all
    first tokens it stands for, and later blocks attend to it as to all of those. Class tokens are
    never merged.

    The paper gives r; here r follows from K and differs by at most one between blocks, so that
    exactly K tokens are left. In the tower tokens have the paper's order, which mixes up rows and
    columns; before the decoder they are put in the order of the first token each stands for, where
    the paper's would tell the decoder of a picture that is not there.

    Parameters
    ----------
    budget : int or float
        K, tokens of a picture or share of each crop; see `TowerMethod` for this, `budget_mode` and
        `positions`. A block removes at most half of its tokens, so K has a lower limit.
    inflect : float
        Between -1 and 1: with r on average the first block merges about r (1 - inflect) pairs, the
        last r (1 + inflect). 0 is the paper's constant schedule, -1 its decreasing one.
    """

    name: ClassVar[str] = "tome"
    card: ClassVar[Card] = Card(
        title="ToMe",
        year=2023,
        objective="visual",
        pruning_point="in every block of the vision tower",
        signal="similarity of keys",
        paper="2210.09461",
        needs=("tower",),
        departs=(
            "r follows from K, so that exactly K are left; before the decoder tokens are "
            "put in the order of the first token each stands for"
        ),
    )
    proportional_attention = True

    inflect: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.inflect, bool) or not isinstance(self.inflect, int | float):
            raise InputError(f"inflect must be a number, got {self.inflect!r}.")
        if not -1 <= self.inflect <= 1:
            raise InputError(f"inflect must lie between -1 and 1, got {self.inflect}.")

    def vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        """Every block that matters to the visual tokens."""
        return range(feature_block + 1)

    def plan_counts(self, total: int, left: int, blocks: int) -> list[int]:
        """See `TowerMethod.plan_counts`; a block cannot merge more than half of its tokens."""
        return limit_to_half(remove_evenly(total, left, blocks, self.inflect), total)

    def merge_in_vision_encoder(self, view: VisionView) -> VisionMerge:
        """Bipartite soft matching of the keys."""
        remove = self.count_to_remove(view)
        if remove == 0:
            return leave_unchanged(view)
        metric = view.keys().float().mean(1)
        check_numbers(metric, view)
        matching = match_pairs(metric, remove, view.classes)
        return VisionMerge(matching.groups, matching.average(view.hidden_states, view.sizes))
