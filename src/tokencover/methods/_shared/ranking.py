"""The best tokens by score, the same on every device and in every batch."""

from __future__ import annotations

from collections.abc import Sequence
from operator import gt

import torch
from torch import Tensor

from tokencover.covering import rank_descending
from tokencover.errors import InputError


def choose_best(scores: Tensor, mask: Tensor, counts: Sequence[int]) -> list[Tensor]:
    """Return the tokens with the highest scores of each sample; ties go to the lowest index.

    Parameters
    ----------
    scores : Tensor
        ``(b, n)``, compared in float32; infinite scores are allowed.
    mask : Tensor
        ``(b, n)`` bool, the tokens that may be chosen.
    counts : sequence of int
        How many to choose of each sample, at most as many as its mask allows.

    Returns
    -------
    list of Tensor
        For each sample ``(count,)`` int64 indices, best first.

    Raises
    ------
    InputError
        If a score is NaN, or a sample has fewer tokens than its count.
    """
    order = _rank_distinct(scores, mask, counts) if scores.device.type == "cpu" else None
    if order is None:
        order = _rank_all(scores, mask, counts)
    return [row[:count] for row, count in zip(order.unbind(), counts, strict=True)]


def choose_top(scores: Tensor, count: int) -> Tensor:
    """`choose_best` of a single sample, scores ``(n,)``, any of whose tokens may be chosen."""
    return choose_best(scores[None], torch.ones_like(scores[None], dtype=torch.bool), [count])[0]


def _rank_distinct(scores: Tensor, mask: Tensor, counts: Sequence[int]) -> Tensor | None:
    """Return the best of each sample, or None if the top scores have ties or may have NaN."""
    wanted = max(counts, default=0) + 1
    samples, tokens = scores.shape
    if not 1 < wanted <= tokens or min(counts) < 0 or len(counts) != samples:
        return None
    if not mask.all():
        if any(map(gt, counts, mask.sum(-1).tolist())):
            return None
        scores = scores.masked_fill(~mask, -torch.inf)
    best = scores.float().topk(wanted)
    falls = best.values[:, :-1] > best.values[:, 1:]
    return best.indices if falls.all() else None


def _rank_all(scores: Tensor, mask: Tensor, counts: Sequence[int]) -> Tensor:
    """Rank all tokens of each sample; those that may not be chosen come last."""
    bad = scores.isnan() & mask
    # In one transfer: on an accelerator each one waits for all earlier work.
    present, unknown = torch.stack([mask.sum(-1), bad.sum(-1)]).tolist()
    if any(unknown):
        sample, token = bad.nonzero()[0].tolist()
        raise InputError(
            f"the score of token {token} of sample {sample} is NaN: check the hidden states, for "
            "example for a float16 overflow."
        )
    for sample, (available, count) in enumerate(zip(present, counts, strict=True)):
        if not 0 <= count <= available:
            raise InputError(f"sample {sample} has {available} tokens to choose from, not {count}.")
    order = rank_descending(scores.float())
    if min(present, default=0) < mask.shape[-1]:
        exists = mask.gather(-1, order)
        order = order.gather(-1, rank_descending(exists))
    return order


def select_highest(values: Tensor, count: int) -> Tensor:
    """Return unordered indices ``(..., count)`` of the highest values; ties go to the lowest."""
    if 0 < count < values.shape[-1] and values.device.type == "cpu":
        best = values.topk(count + 1)
        if (best.values[..., count - 1] > best.values[..., count]).all():
            return best.indices[..., :count]
    return rank_descending(values)[..., :count]
