"""Dropped tokens averaged into the kept one that is most like them."""

from __future__ import annotations

import torch
from torch import Tensor

from tokencover.covering import cosine, keep_precision, select_largest, snap, to_float32


def fold_into_nearest(tokens: Tensor, kept: Tensor, weight: float) -> Tensor:
    """Average each kept token with the dropped tokens whose nearest kept one it is.

    Nearest is by cosine; ties go to the kept token that is named first.

    Parameters
    ----------
    tokens : Tensor
        ``(n, d)``, all tokens of a sample.
    kept : Tensor
        ``(k,)`` int64, at least one.
    weight : float
        Of a dropped token; a kept one has weight 1.

    Returns
    -------
    Tensor
        ``(k, d)`` float32, in the order of `kept`.
    """
    is_dropped = torch.ones(len(tokens), dtype=torch.bool, device=tokens.device)
    is_dropped[kept] = False
    dropped, centers = tokens[is_dropped], tokens[kept]
    with keep_precision(tokens.device):
        nearest = select_largest(cosine(snap(to_float32(dropped)), snap(to_float32(centers))))
    places = torch.arange(len(kept), device=tokens.device)
    joins = places.unsqueeze(-1) == nearest.to(tokens.device)
    return average_members(centers, dropped, joins, weight)


def average_members(centers: Tensor, others: Tensor, joins: Tensor, weight: float = 1.0) -> Tensor:
    """Average each token with others that go into it.

    A product with weights, not a scattered sum: that one would depend on the order in which a GPU
    adds. Gradients flow through it.

    Parameters
    ----------
    centers : Tensor
        ``(k, d)``.
    others : Tensor
        ``(m, d)``.
    joins : Tensor
        ``(k, m)`` bool, which of the others goes into which.
    weight : float
        Of each of the others; a centre has weight 1.

    Returns
    -------
    Tensor
        ``(k, d)`` float32.
    """
    members = weight * joins.float()
    with torch.autocast(centers.device.type, enabled=False):
        sums = centers.float() + members @ others.float()
    return sums / (1 + members.sum(-1, keepdim=True))
