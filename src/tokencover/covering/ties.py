"""The tie rule of the whole library: of equal values, the one with the lowest index comes first.

Every choice that tokencover makes ends in a comparison, and on blank pages, padding and copied
frames many values are equal. Which of them is taken must not depend on a device, a batch or a
library's sort, so every choice goes through one of these functions. They settle ties between values
that *are* equal; `exact.py` sees to it that equal tokens have equal values.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def rank_descending(values: Tensor) -> Tensor:
    """Indices of the last dimension, largest value first.

    Parameters
    ----------
    values : Tensor
        ``(..., n)``, numbers or bool; infinite ones are allowed.

    Returns
    -------
    Tensor
        ``(..., n)`` int64.
    """
    return _make_comparable(values).argsort(dim=-1, descending=True, stable=True)


def rank_ascending(values: Tensor) -> Tensor:
    """Indices of the last dimension, smallest value first; shapes as for `rank_descending`."""
    return _make_comparable(values).argsort(dim=-1, stable=True)


def find_largest(values: Tensor) -> Tensor:
    """Index of the largest value of the last dimension, ``(...)`` int64."""
    return values.argmax(dim=-1)  # torch documents that it gives the first of several


def find_smallest(values: Tensor) -> Tensor:
    """Index of the smallest value of the last dimension, ``(...)`` int64."""
    return values.argmin(dim=-1)


def mark_largest(values: Tensor, count: Tensor) -> Tensor:
    """Mark the first `count` of `rank_descending` without ranking; -inf is never marked.

    Parameters
    ----------
    values : Tensor
        ``(..., n)``.
    count : Tensor
        ``(...)`` int64, at least 1; may be more than n.

    Returns
    -------
    Tensor
        ``(..., n)`` bool.
    """
    count = count.unsqueeze(-1)
    ordered = values.sort(dim=-1, descending=True).values
    last_place = count.clamp(max=values.shape[-1]) - 1
    last = ordered.gather(-1, last_place.expand(*values.shape[:-1], 1))
    above = values > last
    equal = values == last
    left = count - above.sum(-1, keepdim=True)
    marked = above | (equal & (equal.cumsum(-1) <= left))
    return marked & (values > -math.inf)


def count_before(values: Tensor, index: int) -> Tensor:
    """How many values of the last dimension `rank_descending` puts before the one at `index`."""
    own = values[..., index : index + 1]
    return (values > own).sum(-1) + (values[..., :index] == own).sum(-1)


def _make_comparable(values: Tensor) -> Tensor:
    if values.dtype == torch.bool:
        return values.to(torch.uint8)
    # Adding zero makes -0.0 the same as 0.0 for sorts that compare bits.
    return values + 0.0 if values.is_floating_point() else values
