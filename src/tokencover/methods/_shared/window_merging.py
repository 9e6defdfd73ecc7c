"""Merge windows of similar neighboring tokens of an image grid."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from tokencover.covering import keep_precision
from tokencover.methods._shared.ranking import choose_best

_LEAST_NORM = 1e-12
"""Shorter tokens have no direction."""
_STEPS = 2.0**20
"""Grid steps of a mean cosine, coarser than float32 errors."""


def cut_windows(grid: tuple[int, int], side: int) -> Tensor:
    """Return the tokens of each window, ``(w, side * side)`` int64, in raster order.

    Windows of `side` by `side` tokens do not overlap. Remaining rows and columns at the lower and
    right border belong to none.
    """
    windows = _cut(torch.arange(grid[0] * grid[1]).unsqueeze(0), grid, side)
    return windows.transpose(2, 3).reshape(-1, side * side)


def _cut(values: Tensor, grid: tuple[int, int], side: int) -> Tensor:
    """View ``(c, rows * columns, ...)`` as ``(c, down, side, across, side, ...)`` windows."""
    down, across = grid[0] // side, grid[1] // side
    inside = values.unflatten(1, grid)[:, : down * side, : across * side]
    windows: Tensor = inside.unflatten(2, (across, side)).unflatten(1, (down, side))
    return windows


def compare_in_windows(tokens: Tensor, grid: tuple[int, int], side: int) -> Tensor:
    """Compute the mean cosine of all pairs of tokens ``(c, n, d)`` per window, ``(c, w)`` float32.

    Rounded to steps of 2**-20: windows of copies have exactly 1.
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
    """Replace windows of similar tokens ``(c, rows * columns, d)`` by their means.

    Every crop merges equally many windows, its most similar ones, ties by the lowest index: as many
    as reach the threshold in the crop with the fewest.

    Returns the new token ``(c, rows * columns)`` of each token, and the new tokens ``(c, m, d)`` in
    raster order of their first members; `tokens` itself if nothing is merged.
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
