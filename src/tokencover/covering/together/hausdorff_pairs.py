"""The Hausdorff distance of a whole batch: exact distances of the few pairs that may decide."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tokencover.covering.exact import snap, square_distance
from tokencover.covering.together.directions import Directions, multiply

_FEW = 64


def measure_hausdorff(visual: Directions, prompt: Directions) -> tuple[Tensor, Tensor, Tensor]:
    """Squared directed distances of the visual and prompt tokens of each sample.

    Returns ``(b,)`` float64 twice: the largest over visual tokens of the smallest over prompt
    tokens, and the reverse; and ``(b,)`` bool: False where too many pairs came into question.
    """
    exists = visual.exists.unsqueeze(2) & prompt.exists.unsqueeze(1)
    sizes = [(each.unit != 0).any(-1).float() for each in (visual, prompt)]
    table = multiply(visual.unit, prompt.unit).mul_(-2.0)
    table += sizes[0].unsqueeze(2) + sizes[1].unsqueeze(1)
    table.masked_fill_(~exists, math.inf)
    margin = 4 * visual.error + 1e-6
    few = min(_FEW, table.shape[1])
    # Forth: the tokens that may be the worst, each with all words.
    nearest = table.amin(2).masked_fill_(~visual.exists, -math.inf)
    worst = nearest >= nearest.amax(-1, keepdim=True) - margin
    tokens = nearest.topk(few).indices
    forth = _measure(visual, prompt, tokens, exists).amin(2)
    forth = forth.masked_fill_(~visual.exists.gather(1, tokens), -math.inf).amax(-1)
    # Back: the words that may be the worst, each with the tokens that may be nearest to it.
    nearest = table.amin(1).masked_fill_(~prompt.exists, -math.inf)
    bad = nearest >= nearest.amax(-1, keepdim=True) - margin
    slack = (table - nearest.unsqueeze(1)).masked_fill_(~bad.unsqueeze(1), math.inf).amin(2)
    tokens = slack.topk(few, largest=False).indices
    back = _measure(visual, prompt, tokens, exists).amin(1)
    back = back.masked_fill_(~bad, -math.inf).amax(-1)
    proven = (worst.sum(-1) <= few) & ((slack <= margin).sum(-1) <= few)
    return forth, back, proven


def _measure(visual: Directions, prompt: Directions, tokens: Tensor, exists: Tensor) -> Tensor:
    """Exact squared distances of some tokens, ``(b, m)``, to all words; inf if one is missing."""
    here = exists.gather(1, tokens.unsqueeze(-1).expand(-1, -1, exists.shape[2]))
    squares = square_distance(visual.snap(tokens), snap(prompt.tokens))
    return squares.masked_fill_(~here, math.inf)


def measure_all_pairs(visual: Directions, prompt: Directions) -> tuple[Tensor, Tensor]:
    """The same from exact distances of all pairs of one sample, scalars."""
    words = snap(prompt.tokens)
    exists = visual.exists[0].unsqueeze(1) & prompt.exists[0]
    tables = torch.cat([square_distance(points, words)[0] for points in visual.snap_all()])
    tables = tables.masked_fill_(~exists, math.inf)
    forth = tables.amin(1).masked_fill_(~visual.exists[0], -math.inf)
    back = tables.amin(0).masked_fill_(~prompt.exists[0], -math.inf)
    return forth.amax(), back.amax()
