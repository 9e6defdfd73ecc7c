"""VisionZip: longer is better but not necessary in vision language models (CVPR 2025).

Place: before the decoder. Signal: the class token's attention in the tower block that makes the
visual tokens, and the cosine of that block's keys; the question is not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import torch
from torch import Tensor

from tokencover.budget import round_half_up
from tokencover.covering import select_largest
from tokencover.methods._shared.crop_tokens import CropTokens, Made, write_tokens
from tokencover.methods._shared.ranking import choose_best
from tokencover.methods._shared.tower_crops import Crops, ReadsTower, read_attention_rows
from tokencover.methods.base import Card, Choice, View, VisionOutputs
from tokencover.methods.registry import register_method

CONTEXTUAL_SHARE = Fraction(5, 32)
"""10 of 64, 20 of 128 and 30 of 192 in the paper."""


@register_method
@dataclass(frozen=True)
class VisionZip(ReadsTower):
    """Keep the dominant tokens of each crop, and merge the others into a few contextual ones.

    arXiv 2412.04467. Of a crop's share, 5 in 32 tokens are contextual; the dominant ones are the
    class token and the patches that it attends to most. Of the other patches, evenly spaced ones
    become targets; each of the rest joins the target with the most similar key (mean over heads).
    A contextual token is its target plus the mean of those that joined. The decoder sees class
    token, dominant patches, contextual tokens; of tiles it sees all dominant patches in raster
    order first, then class tokens, then contextual ones.

    Where the released code differs: its two numbers are for one crop, here one budget is for the
    whole prompt and shared evenly among crops; padding of tiles, which the model's own packing has
    cut away, is neither kept nor merged; a crop that may keep all its tokens is left as it is. A
    tower without class tokens has none to keep, and its score is the mean attention received. Where
    the model folds patches into one token (the Qwens, InternVL) scores and keys are means over its
    patches, tokens are merged as they are after folding, and a class token is not kept. With
    ``positions="original"`` each token stays where it comes from.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep. For `budget_mode` and `positions` see `BudgetedMethod`;
        the decoder gets a sequence without gaps.
    """

    name: ClassVar[str] = "visionzip"
    card: ClassVar[Card] = Card(
        title="VisionZip",
        year=2024,
        objective="visual",
        pruning_point="before the decoder",
        signal="class token's attention in the vision tower; the rest merged by similar keys",
        paper="2412.04467",
        needs=("encoder",),
        departs=(
            "one budget for the prompt, shared evenly by its crops; padding is neither kept"
            " nor merged"
        ),
    )

    drops_newlines = True
    merges = True

    def choose(self, view: View) -> Choice:
        """Dominant and contextual tokens of every crop."""
        encoded, crops = Crops.from_view(view, "VisionZip")
        budgets = self.num_kept(view)
        counts, capacities = crops.share_evenly(budgets), crops.capacities
        whole = [count == fits for count, fits in zip(counts, capacities, strict=True)]
        contextual = [
            0 if all_ else round_half_up(CONTEXTUAL_SHARE * count)
            for count, all_ in zip(counts, whole, strict=True)
        ]
        has_class = encoded.classes > 0 and encoded.passes_classes
        patches = [
            count if all_ else max(0, count - merged - has_class)
            for count, merged, all_ in zip(counts, contextual, whole, strict=True)
        ]
        scores = read_attention_rows(encoded, encoded.feature_block).sum(1)
        dominant = _mark(crops.visible, choose_best(scores, crops.visible, patches))
        rest = crops.visible & ~dominant
        targets = space_evenly(rest, contextual)
        merged = merge_into(encoded, rest & ~targets, targets)
        made = {}
        for sample, mine in enumerate(crops.members):
            for crop in (crop for crop in mine if counts[crop]):
                slots = crops.slot[crop, dominant[crop]]
                made[crop] = CropTokens(
                    classes=_take_class_token(
                        encoded, crops, crop, kept=has_class and not whole[crop]
                    ),
                    patches=Made(slots, view.hidden_states[sample].index_select(0, slots)),
                    merged=Made(crops.slot[crop, targets[crop]], encoded.project(merged[crop])),
                )
        stay = self.positions == "original"
        return write_tokens(made, crops, view, fill=budgets, stay=stay)


def space_evenly(rest: Tensor, counts: Sequence[int]) -> Tensor:
    """So many of the marked cells of each crop, from the first on, at even steps.

    Parameters
    ----------
    rest : Tensor
        ``(c, cells)`` bool.
    counts : sequence of int
        For each crop, at most as many as are marked.
    """
    wanted = torch.tensor(counts, device=rest.device).unsqueeze(-1)
    step = (rest.sum(-1, keepdim=True) // wanted.clamp(min=1)).clamp(min=1)
    rank = rest.cumsum(-1) - 1
    return rest & (rank % step == 0) & (rank // step < wanted)


def merge_into(encoded: VisionOutputs, members: Tensor, targets: Tensor) -> list[Tensor]:
    """Features of the targets, which have received the mean of the members nearest to them.

    Parameters
    ----------
    encoded : VisionOutputs
        Features, and keys of the block that made them.
    members, targets : Tensor
        ``(c, cells)`` bool.

    Returns
    -------
    list of Tensor
        For each crop, ``(targets of the crop, w)``.
    """
    keys = encoded.keys(encoded.feature_block)[:, :, encoded.classes :].float().mean(1)
    keys = encoded.fold(keys.transpose(1, 2)).transpose(1, 2)
    joined = []
    patches = encoded.features[:, encoded.classes :]
    for crop, (direction, features) in enumerate(zip(keys, patches, strict=True)):
        goals, others = (each[crop].nonzero().squeeze(-1) for each in (targets, members))
        received = features.index_select(0, goals).float()
        if len(goals) and len(others):
            unit = torch.nn.functional.normalize(direction, dim=-1)
            nearest = select_largest(unit.index_select(0, others) @ unit.index_select(0, goals).T)
            # Sums as products, so that they are the same on every run.
            joins = received.new_zeros(len(goals), len(features))
            joins.view(-1).index_fill_(0, nearest * len(features) + others, 1.0)
            counts = joins.sum(1, keepdim=True).clamp(min=1)
            received += joins @ features.float() / counts
        joined.append(received.to(features.dtype))
    return joined


def _mark(like: Tensor, chosen: Sequence[Tensor]) -> Tensor:
    marked = torch.zeros_like(like)
    for crop, cells in enumerate(chosen):
        marked[crop, cells] = True
    return marked


def _take_class_token(encoded: VisionOutputs, crops: Crops, crop: int, *, kept: bool) -> Made:
    """The first class token of a crop, or nothing."""
    count = int(kept)
    source = crops.class_slot[crop : crop + count]
    return Made(source, encoded.project(encoded.features[crop, :count]))
