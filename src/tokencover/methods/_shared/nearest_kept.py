"""Merge dropped tokens into the most similar kept token."""

from __future__ import annotations

import torch
from torch import Tensor

from tokencover.covering import cosine, keep_precision, select_largest, snap, to_float32


def merge_into_nearest(tokens: Tensor, kept: Tensor, weight: float) -> Tensor:
    """Average each kept token with the dropped tokens nearest to it by cosine, ``(k, d)`` float32.

    `tokens` are the ``(n, d)`` tokens of a sample, `kept` ``(k,)`` indices, ties to the first. A
    dropped token has this weight, a kept one 1.
    """
    is_dropped = torch.ones(len(tokens), dtype=torch.bool, device=tokens.device)
    is_dropped[kept] = False
    dropped, centers = tokens[is_dropped], tokens[kept]
    with keep_precision(tokens.device):
        nearest = select_largest(cosine(snap(to_float32(dropped)), snap(to_float32(centers))))
    targets = torch.arange(len(kept), device=tokens.device)
    joins = targets.unsqueeze(-1) == nearest.to(tokens.device)
    return average_members(centers, dropped, joins, weight)


def average_members(centers: Tensor, dropped: Tensor, joins: Tensor, weight: float = 1.0) -> Tensor:
    """Average centers ``(k, d)`` with the dropped tokens ``(m, d)`` that join them, in float32.

    `joins` is ``(k, m)`` bool. A product, because scattered sums depend on the order in which a GPU
    adds; keeps gradients.
    """
    members = weight * joins.float()
    with torch.autocast(centers.device.type, enabled=False):
        sums = centers.float() + members @ dropped.float()
    return sums / (1 + members.sum(-1, keepdim=True))
