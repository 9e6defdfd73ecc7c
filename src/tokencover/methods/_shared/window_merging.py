"""Windows of a picture's grid whose tokens are alike become one token: pure tensor code."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from tokencover.covering import keep_precision
from tokencover.methods._shared.ranking import choose_best

_LEAST_NORM = 1e-12
"""Shorter tokens have no direction."""
_STEPS = 2.0**20
"""Of a mean cosine, wider than what float32 loses."""


def cut_windows(grid: tuple[int, int], side: int) -> Tensor:
    """Which tokens each window has.

    Parameters
    ----------
    grid : tuple of int
        Rows and columns of the tokens.
    side : int
        Windows are `side` by `side` tokens and do not overlap. Rows and columns that are left over
        at the lower and right border belong to none.

    Returns
    -------
    Tensor
        ``(w, side * side)`` int64, windows and their tokens in raster order.
    """
    windows = _cut(torch.arange(grid[0] * grid[1]).unsqueeze(0), grid, side)
    return windows.transpose(2, 3).reshape(-1, side * side)


def _cut(values: Tensor, grid: tuple[int, int], side: int) -> Tensor:
    """See ``(c, rows * columns, ...)`` as ``(c, down, side, across, side, ...)`` windows."""
    down, across = grid[0] // side, grid[1] // side
    inside = values.unflatten(1, grid)[:, : down * side, : across * side]
    windows: Tensor = inside.unflatten(2, (across, side)).unflatten(1, (down, side))
    return windows


def compare_in_windows(tokens: Tensor, grid: tuple[int, int], side: int) -> Tensor:
    """The mean cosine of all pairs of different tokens in each window, in steps of 2**-20.

    So windows of copies are alike by exactly 1, and which of them comes first is a matter of the
    tie rule, not of rounding.

    Parameters
    ----------
    tokens : Tensor
        ``(c, n, d)``; cosines are taken in float32.
    grid, side
        See `cut_windows`.

    Returns
    -------
    Tensor
        ``(c, w)`` float32.
    """
    with keep_precision(tokens.device):
        values = tokens.detach().float()
        norm = torch.linalg.vector_norm(values, dim=-1, keepdim=True)
        windows = _cut(values, grid, side)
        scale = _cut(1 / norm.clamp(min=_LEAST_NORM), grid, side)
        sums = torch.zeros_like(windows[:, :, 0, :, 0])
        for row, column in product(range(side), repeat=2):
            sums.addcmul_(windows[:, :, row, :, column], scale[:, :, row, :, column])
        # The square of a sum is the sum of all products, those with itself included: 0 or 1.
        own = _cut((norm > _LEAST_NORM).float(), grid, side).sum((2, 4))
        count = side * side
        pairs: Tensor = sums.square_().sum(-1, keepdim=True) - own
        mean = (pairs / (count * (count - 1))).flatten(1)
        return mean.mul_(_STEPS).round_().div_(_STEPS)


def merge_windows(
    tokens: Tensor, grid: tuple[int, int], side: int, threshold: float
) -> tuple[Tensor, Tensor]:
    """Collapse the windows that are alike to their means.

    Every crop merges equally many windows, its most similar ones, ties by the lowest index: as many
    as have at least `threshold` similarity in the crop with fewest of them.

    Parameters
    ----------
    tokens : Tensor
        ``(c, rows * columns, d)``.
    grid, side
        See `cut_windows`.
    threshold : float
        See `compare_in_windows`.

    Returns
    -------
    groups : Tensor
        ``(c, rows * columns)`` int64, which new token each becomes part of.
    merged : Tensor
        ``(c, m, d)``, the new tokens, in the raster order of their first members; `tokens` itself
        if nothing is merged.
    """
    similarity = compare_in_windows(tokens, grid, side)
    merging = int((similarity >= threshold).sum(-1).min())
    if merging == 0 and not similarity.isnan().any():
        return torch.arange(tokens.shape[1], device=tokens.device).repeat(len(tokens), 1), tokens
    crops = torch.arange(len(tokens), device=tokens.device).unsqueeze(-1)
    chosen = torch.stack(
        choose_best(
            similarity, torch.ones_like(similarity, dtype=torch.bool), [merging] * len(tokens)
        )
    )
    joined = cut_windows(grid, side).to(tokens.device)[chosen]  # (c, merging, side * side)
    first = joined[..., 0]
    means = tokens.float()[crops.unsqueeze(-1), joined].mean(2).to(tokens.dtype)
    values = tokens.index_put((crops, first), means)
    leader = torch.arange(tokens.shape[1], device=tokens.device).repeat(len(tokens), 1)
    leader[crops.unsqueeze(-1), joined] = first.unsqueeze(-1).expand_as(joined)
    leads = leader == torch.arange(tokens.shape[1], device=tokens.device)
    groups = (leads.cumsum(-1) - 1).gather(-1, leader)
    return groups, values[leads].unflatten(0, (len(tokens), -1))
