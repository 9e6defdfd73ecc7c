"""VisionZip (CVPR 2025): longer is better but not necessary in vision language models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import torch
from torch import Tensor

from tokencover.budget import round_half_up
from tokencover.covering import select_largest
from tokencover.methods._shared.crop_tokens import CropTokens, NewTokens, write_tokens
from tokencover.methods._shared.ranking import choose_best
from tokencover.methods._shared.vision_tiles import (
    Crops,
    VisionEncoderMethod,
    compute_cell_attention,
)
from tokencover.methods.base import Card, Choice, View, VisionOutputs
from tokencover.methods.registry import register_method

CONTEXTUAL_FRACTION = Fraction(5, 32)
"""10 of 64, 20 of 128 and 30 of 192 in the paper."""


@register_method
@dataclass(frozen=True)
class VisionZip(VisionEncoderMethod):
    """Keep the dominant tokens of each crop, and merge the others into a few contextual ones.

    https://arxiv.org/abs/2412.04467. Of a crop's budget, 5 in 32 tokens are contextual; the
    dominant ones are the class token and the patches that it attends to most. Of the other patches,
    evenly spaced ones become targets; each of the rest joins the target with the most similar key
    (mean over heads). A contextual token is its target plus the mean of those that joined. The
    decoder gets class token, dominant patches, contextual tokens; of tiles all dominant patches in
    raster order first.

    Differences from the released code: its two numbers are per crop, here one budget is for the
    whole prompt and divided evenly among crops; padding of tiles is neither kept nor merged; a crop
    that may keep all its tokens is unchanged. Without class tokens the score is the mean attention
    received. Where the model merges patches into one token, scores and keys are means over its
    patches, and a class token is not kept. With ``positions="original"`` tokens keep their
    positions.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep: a count, or a fraction of all. For `budget_mode` and
        `positions` see `BudgetedMethod`.
    """

    name: ClassVar[str] = "visionzip"
    card: ClassVar[Card] = Card(
        title="VisionZip",
        year=2024,
        objective="visual",
        pruning_point="before the decoder",
        signal="class token's attention in the vision encoder; the rest merged by similar keys",
        paper="2412.04467",
        needs=("vision attention",),
        departs=(
            "one budget for the prompt, divided evenly among its crops; padding is neither kept "
            "nor merged"
        ),
    )

    drops_newlines = True
    merges = True

    def choose(self, view: View) -> Choice:
        """Compute dominant and contextual tokens of every crop."""
        encoded, crops = Crops.from_view(view, "VisionZip")
        budgets = self.num_kept(view)
        counts, capacities = crops.allocate_evenly(budgets), crops.capacities
        whole = [count == fits for count, fits in zip(counts, capacities, strict=True)]
        contextual = [
            0 if all_ else round_half_up(CONTEXTUAL_FRACTION * count)
            for count, all_ in zip(counts, whole, strict=True)
        ]
        has_class = encoded.classes > 0 and encoded.passes_classes
        patches = [
            count if all_ else max(0, count - merged - has_class)
            for count, merged, all_ in zip(counts, contextual, whole, strict=True)
        ]
        scores = compute_cell_attention(encoded, encoded.feature_block).sum(1)
        dominant = _mark(crops.visible, choose_best(scores, crops.visible, patches))
        rest = crops.visible & ~dominant
        targets = space_evenly(rest, contextual)
        merged = merge_into(encoded, rest & ~targets, targets)
        tokens_of = {}
        for sample, mine in enumerate(crops.members):
            for crop in (crop for crop in mine if counts[crop]):
                slots = crops.slot[crop, dominant[crop]]
                tokens_of[crop] = CropTokens(
                    classes=_take_class_token(
                        encoded, crops, crop, kept=has_class and not whole[crop]
                    ),
                    patches=NewTokens(slots, view.hidden_states[sample].index_select(0, slots)),
                    merged=NewTokens(
                        crops.slot[crop, targets[crop]], encoded.project(merged[crop])
                    ),
                )
        stay = self.positions == "original"
        return write_tokens(tokens_of, crops, view, fill=budgets, stay=stay)


def space_evenly(rest: Tensor, counts: Sequence[int]) -> Tensor:
    """Mark `counts` of the marked cells ``(c, cells)`` of each crop at even steps."""
    wanted = torch.tensor(counts, device=rest.device).unsqueeze(-1)
    step = (rest.sum(-1, keepdim=True) // wanted.clamp(min=1)).clamp(min=1)
    rank = rest.cumsum(-1) - 1
    return rest & (rank % step == 0) & (rank // step < wanted)


def merge_into(encoded: VisionOutputs, members: Tensor, targets: Tensor) -> list[Tensor]:
    """Return the features of the targets plus the mean of the members nearest to each.

    `members` and `targets` are ``(c, cells)`` bool; for each crop ``(targets of the crop, w)``.
    """
    keys = encoded.keys(encoded.feature_block)[:, :, encoded.classes :].float().mean(1)
    keys = encoded.fold(keys.transpose(1, 2)).transpose(1, 2)
    joined = []
    patches = encoded.features[:, encoded.classes :]
    for crop, (direction, features) in enumerate(zip(keys, patches, strict=True)):
        goals, joining = (mask[crop].nonzero().squeeze(-1) for mask in (targets, members))
        received = features.index_select(0, goals).float()
        if len(goals) and len(joining):
            unit = torch.nn.functional.normalize(direction, dim=-1)
            nearest = select_largest(unit.index_select(0, joining) @ unit.index_select(0, goals).T)
            # Sums as products, which do not depend on the order of threads.
            joins = received.new_zeros(len(goals), len(features))
            joins.view(-1).index_fill_(0, nearest * len(features) + joining, 1.0)
            counts = joins.sum(1, keepdim=True).clamp(min=1)
            received += joins @ features.float() / counts
        joined.append(received.to(features.dtype))
    return joined


def _mark(like: Tensor, chosen: Sequence[Tensor]) -> Tensor:
    marked = torch.zeros_like(like)
    for crop, cells in enumerate(chosen):
        marked[crop, cells] = True
    return marked


def _take_class_token(encoded: VisionOutputs, crops: Crops, crop: int, *, kept: bool) -> NewTokens:
    """Return the first class token of a crop, or nothing."""
    count = int(kept)
    source = crops.class_slot[crop : crop + count]
    return NewTokens(source, encoded.project(encoded.features[crop, :count]))
