"""What training minimises."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax

from research.pebble_training.packed_questions import NO_TARGET, PackedQuestions
from research.pebble_training.patch_labels import NONE, SCENE_GROUP_INDEX, SCENE_GROUPS, WordGroup

SHARPNESS: Final = 8.0
THING_WEIGHT: Final = {"color": 3.0, "shape": 6.0, "digit": 5.0, "animal": 5.0}
PLACE_WEIGHT: Final = {
    "region": 0.5,
    "row": 0.5,
    "column": 0.5,
    "tint": 0.3,
    "place": 0.3,
    "frame": 1.0,
}
SUMMARY_WEIGHT: Final = 0.1


def compute_description_loss(
    patches: Tensor,
    words: Tensor,
    labels: Tensor,
    weights: Tensor,
    groups: tuple[WordGroup, ...] = SCENE_GROUPS,
) -> tuple[Tensor, dict[str, float]]:
    """How badly visual tokens tell their words.

    Parameters
    ----------
    patches
        Visual tokens, shape (images, tokens, width).
    words
        Word vectors, shape (words, width).
    labels, weights
        Of a batch.
    groups
        What the labels stand for.

    Returns
    -------
    loss
        A scalar.
    accuracy
        Share of patches with a word of a group that tell the right one, per group.
    """
    scale = words.square().sum(1).mean()
    told = patches @ words.T / scale
    loss = 0.5 * ((patches - weights @ words).square().sum(2) / scale).mean()
    accuracy = {}
    for index, group in enumerate(groups):
        truth = labels[..., index]
        own = told[..., group.ids] * (SHARPNESS / group.weight)
        silent = torch.full_like(own[..., :1], SHARPNESS / 2)
        logits = torch.cat([silent, own], dim=-1)
        each = cross_entropy(logits.flatten(0, 1), truth.flatten() + 1, reduction="none")
        has_one = truth.flatten() != NONE
        emphasis = torch.where(has_one, THING_WEIGHT.get(group.name, 1.0), 1.0)
        loss = loss + (each * emphasis).mean() * PLACE_WEIGHT.get(group.name, 1.0)
        right = logits.flatten(0, 1).argmax(1) == truth.flatten() + 1
        accuracy[group.name] = float(right[has_one].float().mean())
    return loss, accuracy


def compute_summary_loss(summary: Tensor, words: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy with how often the image's things have each colour and shape, and its place.

    It is meant to give the summary token's attention, which some pruning methods read, a meaning.

    Parameters
    ----------
    summary
        Shape (images, width).
    words
        Word vectors, shape (words, width).
    labels
        Of a batch.
    """
    words = words / words.square().sum(1).mean()
    total = summary.new_zeros(())
    is_thing = labels[..., SCENE_GROUP_INDEX["shape"]] != NONE
    for name in ("color", "shape", "place"):
        group = SCENE_GROUPS[SCENE_GROUP_INDEX[name]]
        chosen = labels[..., SCENE_GROUP_INDEX[name]]
        counted = chosen != NONE if name == "place" else is_thing
        onehot = torch.nn.functional.one_hot(chosen.clamp_min(0), len(group.words)).float()
        target = (onehot * counted[..., None]).sum(1)
        target = target / target.sum(1, keepdim=True)
        logits = summary @ words[group.ids].T * SHARPNESS
        total = total - (target * log_softmax(logits, dim=1)).sum(1).mean()
    return SUMMARY_WEIGHT * total


def compute_answer_loss(logits: Tensor, pack: PackedQuestions) -> tuple[Tensor, Tensor]:
    """Cross-entropy of answers (and of stopping after them), and which answers are right.

    Returns
    -------
    loss
        A scalar.
    right
        Shape (images, questions).
    """
    each = cross_entropy(
        logits.flatten(0, 2), pack.targets.flatten(), ignore_index=NO_TARGET, reduction="none"
    ).view(pack.targets.shape)
    asked = pack.targets != NO_TARGET
    first = asked & (asked.cumsum(2) == 1)
    stop = asked & ~first
    count = first.sum().clamp_min(1)
    loss = (each * first).sum() / count + 0.1 * (each * stop).sum() / count
    right = ((logits.argmax(3) == pack.targets) & first).any(2)
    return loss, right
