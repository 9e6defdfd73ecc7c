"""MustDrop (arXiv 2411.10803): from the vision tower to the answer, a filter at each step.

Places: after the vision tower's first block, then after decoder blocks 2, 6, 10 and 14 of 32.
Signals: the likeness of neighbours, the class token's attention in the tower's last block, and the
attention that all text after the picture gives the visual tokens.

Departures from the released code:

- It drops by thresholds, tuned for each benchmark; here the budget says how many stay, unless
  thresholds are given.
- Merged tokens stand where the first of their nine was, not before all others.
- It packs tiles without newline tokens; here a model that has them keeps its packing, and they may
  be dropped like any other.
- After the prefill it also cuts the cached keys of blocks between its stages down to the final
  tokens, and then gives generated tokens positions before the end of the prompt. Here every block
  keeps what it worked on: the same prefill, a little more memory while decoding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

import torch
from torch import Tensor

from tokencover.budget import PublishedMode, resolve_mode, tokens_left, tokens_to_keep
from tokencover.covering import keep_precision, rank_descending
from tokencover.errors import InputError
from tokencover.methods._shared.decoder_stages import (
    check_stages,
    check_text,
    count_by_block,
    scale_stages,
    shrink_evenly,
)
from tokencover.methods._shared.ranking import choose_best
from tokencover.methods._shared.tower_crops import compute_class_logits
from tokencover.methods._shared.window_merging import merge_windows
from tokencover.methods.base import (
    BudgetedMethod,
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
"""The published places: before these blocks of so many."""
START = "mustdrop.start"


@dataclass(frozen=True, slots=True)
class _Start:
    """What the first stage found out for all of them.

    Attributes
    ----------
    present : list of int
        Visual tokens of each sample that reached the decoder.
    left : list of int
        How many may be left in the end.
    key : Tensor
        ``(c * t,)`` bool, which of the tower's tokens are in the key set.
    """

    present: list[int]
    left: list[int]
    key: Tensor


@register_method
@dataclass(frozen=True)
class MustDrop(BudgetedMethod):
    """Merge like neighbours, never lose what the class token looks at, drop what no text looks at.

    In the tower, windows of 3 x 3 tokens with a mean pairwise cosine of at least 0.8 become one
    token each. The tokens that the class token looks at most are the key set. At each stage in the
    decoder the key set comes first, then the tokens with the largest sum of attention from the text
    after the picture.

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` see `BudgetedMethod`. A share is one of all tokens, before merging; if
        merging alone leaves fewer than K, all of those stay. Each stage keeps the same share of
        what the one before left. A key set above a stage's count is cut down by the text's
        attention too.
    merge_threshold : float, optional
        Mean cosine from which on a window is merged; None merges nothing. Crops of one call must
        stay equally long, so all merge as many windows as the one with fewest above the threshold:
        what a picture loses depends on the others of its call. Rows and columns that do not fill a
        window are not merged (the released code demands sides that are multiples of 3).
    key_share : float
        The key set's share of the tokens of each crop after merging, rounded up.
    global_threshold, individual_threshold : float, optional
        The published rule: a token outside the key set is dropped if the text's attention to it is
        below `global_threshold` of that to all visual tokens together, and no single text token
        gives it `individual_threshold`. The budget is then a ceiling at each stage; with 1.0 there
        is none. One token always stays.
    positions : "reindex" or "original"
        See `BudgetedMethod`.
    stages : tuple of int, optional
        After which decoder blocks to prune, counted from 0. By default the published 2, 6, 10 and
        14 of 32, at the same shares of the depth in other decoders.
    """

    name: ClassVar[str] = "mustdrop"
    published_mode: ClassVar[PublishedMode] = "layer_mean"
    card: ClassVar[Card] = Card(
        title="MustDrop",
        year=2024,
        objective="both",
        pruning_point="in the tower; after 3, 7, 11, 15 of 32 blocks",
        signal="likeness of neighbours, class token's attention, attention of the text",
        paper="2411.10803",
        needs=("encoder", "class token", "tower", "text after the picture"),
        departs=(
            "counts instead of thresholds tuned for each benchmark (`global_threshold`, "
            "`individual_threshold` bring them back); merged tokens stand where the first "
            "of them was; caches are not cut afterwards"
        ),
    )
    reads_prompt = False
    drops_newlines = True

    positions: Positions = field(default="reindex", kw_only=True)
    merge_threshold: float | None = 0.8
    key_share: float = 0.08
    global_threshold: float | None = None
    individual_threshold: float | None = None
    stages: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.key_share <= 1:
            raise InputError(f"key_share must be a share from 0 to 1, got {self.key_share}.")
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
        if self.stages is not None:
            check_stages(self.stages)

    # ---- the vision tower -------------------------------------------------------------------

    def vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        """After the first block, that is, before the second."""
        return () if self.merge_threshold is None else (1,)

    def merge_in_vision_encoder(self, view: VisionView) -> VisionMerge:
        """Merge windows of neighbours that are alike."""
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
        """The last block, after the one that makes the features."""
        return (num_blocks - 1,)

    # ---- the decoder ------------------------------------------------------------------------

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        """Before the block that follows each stage's."""
        if self.stages is None:
            return scale_stages(STAGES, DEPTH, num_layers)
        return tuple(stage + 1 for stage in self.stages)

    def watched_layers(self, num_layers: int) -> Sequence[int]:
        """The block before each stage."""
        return tuple(block - 1 for block in self.pruning_layers(num_layers))

    def schedule(self, num_kept: int, total: int, num_layers: int) -> list[int]:
        """The visual tokens each decoder block works on, of `total` that reached the decoder."""
        stages = self.pruning_layers(num_layers)
        present = [total, *shrink_evenly(total, Fraction(num_kept, total), len(stages))]
        return count_by_block(present, stages, num_layers)

    def choose(self, view: View) -> Choice:
        """The key set, and what the text looks at most."""
        check_text(view)
        encoded = view.vision
        if encoded is None or encoded.classes == 0:
            raise InputError(
                "MustDrop needs the class token's attention to each visual token in the vision "
                "tower, and this one has no class token: use a model with a CLIP tower, or another "
                "method."
            )
        if START not in view.notes:
            view.notes[START] = self._begin(view, encoded)
        start: _Start = view.notes[START]
        rows = view.attention(view.layer_idx - 1, view.text_positions).mean(1)
        sums, mask = rows.sum(1), view.mask
        index = encoded.index
        key = start.key.to(rows.device)[index.clamp(min=0)] & (index >= 0) & mask
        allowed = (key | self._find_above(rows, sums)) & mask
        orders = choose_best(sums, mask, view.mask.sum(-1).tolist())
        kept = []
        for sample, by_attention in enumerate(orders):
            ceiling = self.schedule(start.left[sample], start.present[sample], view.num_layers)
            key_first = rank_descending(key[sample, by_attention])
            order = by_attention[key_first]
            passing = order[allowed[sample, order]]
            kept.append(passing[: ceiling[view.layer_idx]] if len(passing) else order[:1])
        return Choice(kept, details=[{"key_tokens": int(each.sum())} for each in key])

    def _find_above(self, rows: Tensor, sums: Tensor) -> Tensor:
        """``(b, n)`` bool, the tokens that the thresholds would not drop: all if there are none."""
        if self.global_threshold is None or self.individual_threshold is None:
            return torch.ones_like(sums, dtype=torch.bool)
        share = self.global_threshold * sums.sum(-1, keepdim=True)
        return (sums >= share) | (rows.amax(1) >= self.individual_threshold)

    def _begin(self, view: View, encoded: VisionOutputs) -> _Start:
        """Counts of the merged tokens: `view.total` counts them before merging."""
        present = view.mask.sum(-1).tolist()
        left = []
        for count, total, others in zip(
            present, view.total.tolist(), view.others.tolist(), strict=True
        ):
            left.append(
                tokens_left(
                    tokens_to_keep(self.budget, total),
                    resolve_mode(self.budget_mode, self.published_mode),
                    total=count,
                    others=others,
                    schedule=lambda end, count=count: self.schedule(end, count, view.num_layers),  # type: ignore[misc]
                    cost=view.cost,
                )
            )
        return _Start(present, left, find_key_set(encoded, self.key_share))


def find_key_set(encoded: VisionOutputs, share: float) -> Tensor:
    """The tokens of each crop that the class token looks at most in the tower's last block.

    Parameters
    ----------
    encoded : VisionOutputs
        With at least one class token; the first is asked. What was merged in the tower is there as
        copies, which are told by their equal keys and count as one token.
    share : float
        Of the tokens of each crop, class tokens apart; rounded up.

    Returns
    -------
    Tensor
        ``(c * t,)`` bool.
    """
    block, classes = encoded.num_blocks - 1, encoded.classes
    with keep_precision(encoded.features.device):
        keys = encoded.keys(block).float()
        products = compute_class_logits(encoded.queries(block), keys, encoded.scaling)
        copies = [_find_copies(own) for own in keys]
        weights = torch.stack(
            [_weigh(own, *found) for own, found in zip(products, copies, strict=True)]
        )
        # Where the model folds patches, what is looked at is the visual token they become.
        cells = encoded.fold(weights[:, classes:])
        if cells.shape[1] != weights.shape[1] - classes:
            folded = encoded.fold(keys[:, :, classes:].transpose(-1, -2)).transpose(-1, -2)
            both = zip(keys[:, :, :classes], folded, strict=True)
            copies = [_find_copies(torch.cat(parts, 1)) for parts in both]
            weights = torch.cat([weights[:, :classes], cells], 1)
        marked = [
            _mark_most(own, *found, classes, share)
            for own, found in zip(weights, copies, strict=True)
        ]
    return torch.cat(marked)


def _weigh(products: Tensor, first: Tensor, leader: Tensor) -> Tensor:
    """``(p,)``, how much the class token looks at each token; at copies as at the first of them."""
    return products.masked_fill(~first, -torch.inf).softmax(-1).mean(0)[leader]


def _mark_most(
    weights: Tensor, first: Tensor, leader: Tensor, classes: int, share: float
) -> Tensor:
    """``(t,)`` bool, those with the largest weights; copies are chosen together."""
    first = first.clone()
    first[:classes] = False
    # A decimal share times a count, without the last digit that floats add: 0.08 * 25 is 2.
    count = math.ceil(round(share * int(first.sum()), 9))
    (chosen,) = choose_best(weights.unsqueeze(0), first.unsqueeze(0), [count])
    key = torch.zeros_like(first)
    key[chosen] = True
    return key[leader]


def _find_copies(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Which tokens of ``(heads, t, d)`` keys are the first of equal ones, and each one's first."""
    place = torch.arange(keys.shape[1], device=keys.device)
    if keys.device.type == "cpu" and _are_different(keys):
        return torch.ones_like(place, dtype=torch.bool), place
    _, group = keys.transpose(0, 1).flatten(1).unique(dim=0, return_inverse=True)
    first = torch.full_like(place, len(group)).scatter_reduce(0, group, place, "amin")
    leader = first[group]
    return leader == place, leader


def _are_different(keys: Tensor) -> bool:
    """Whether a few bits of each token show that there are no copies, without a sort of all."""
    # Whole numbers, whose sums are the same in every order; adding zero makes -0.0 the same as 0.0.
    bits = (keys[:, :, 0] + 0.0).view(torch.int32).long()
    mark = (bits * torch.arange(1, 2 * len(bits), 2).unsqueeze(-1)).sum(0).sort().values
    return bool((mark[1:] > mark[:-1]).all())
