"""The best tokens by score, the same on every device and in every batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tokencover.covering import rank_descending
from tokencover.errors import InputError


def choose_best(scores: Tensor, mask: Tensor, counts: Sequence[int]) -> list[Tensor]:
    """The highest scores of each sample; ties go to the lowest index.

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
        If a score that counts is not a number, or fewer tokens exist than are asked for.
    """
    bad = scores.isnan() & mask
    # Read together: on an accelerator each reading waits for all that was asked for before.
    present, unknown = torch.stack([mask.sum(-1), bad.sum(-1)]).tolist()
    if any(unknown):
        sample, token = bad.nonzero()[0].tolist()
        raise InputError(
            f"the score of token {token} of sample {sample} is not a number: look for NaN in the "
            "model's states, a float16 overflow for instance."
        )
    for sample, (available, count) in enumerate(zip(present, counts, strict=True)):
        if not 0 <= count <= available:
            raise InputError(f"sample {sample} has {available} tokens to choose from, not {count}.")
    order = rank_descending(scores.float())
    if min(present, default=0) < mask.shape[-1]:
        exists = mask.gather(-1, order)
        order = order.gather(-1, rank_descending(exists))
    return [row[:count] for row, count in zip(order, counts, strict=True)]
