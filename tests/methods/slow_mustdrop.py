"""MustDrop's formulas, slowly written down: loops in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def slow_windows(grid: tuple[int, int]) -> list[list[int]]:
    rows, columns = grid
    return [
        [(top + i) * columns + left + j for i in range(3) for j in range(3)]
        for top in range(0, rows - 2, 3)
        for left in range(0, columns - 2, 3)
    ]


def slow_similarity(tokens: Tensor, window: Sequence[int]) -> float:
    """In steps of 2**-20."""
    found = 0.0
    for i in window:
        for j in window:
            if i != j:
                found += float(torch.cosine_similarity(tokens[i].double(), tokens[j].double(), 0))
    return round(found / 72 * 2**20) / 2**20


def slow_merge(crops: Tensor, grid: tuple[int, int], threshold: float) -> list[list[list[int]]]:
    """For each crop its groups of tokens, in the order of their first members."""
    windows = slow_windows(grid)
    alike = [[slow_similarity(crop, window) for window in windows] for crop in crops]
    count = min(sum(each >= threshold for each in crop) for crop in alike)
    found = []
    for similarity in alike:
        best = sorted(range(len(windows)), key=lambda w: (-similarity[w], w))[:count]
        merged = [windows[w] for w in best]
        taken = {token for window in merged for token in window}
        single = [[token] for token in range(grid[0] * grid[1]) if token not in taken]
        found.append(sorted(merged + single))
    return found


def slow_key_set(weights: Tensor, share: float) -> list[int]:
    """The best of one crop's class row ``(n,)``, class token apart."""
    count = math.ceil(round(share * len(weights), 9))
    return sorted(range(len(weights)), key=lambda i: (-float(weights[i]), i))[:count]


def slow_stage(
    rows: Tensor, key: set[int], count: int, thresholds: tuple[float, float] | None = None
) -> list[int]:
    """What stays, ascending, given the text's head mean rows ``(t, n)``."""
    sums = [float(rows[:, j].double().sum()) for j in range(rows.shape[1])]
    tokens = list(range(len(sums)))
    if thresholds is not None:
        tokens = [
            j
            for j in tokens
            if j in key
            or not (sums[j] < thresholds[0] * sum(sums) and float(rows[:, j].max()) < thresholds[1])
        ]
    return sorted(sorted(tokens, key=lambda j: (j not in key, -sums[j], j))[:count])


def alike_in_places(grid: tuple[int, int], seed: int, noise: Sequence[float]) -> Tensor:
    """Tokens of one crop to merge; each window has a direction and some noise."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randn(grid[0] * grid[1], 8, generator=generator)
    for window, amount in zip(slow_windows(grid), noise, strict=False):
        tokens[window] = torch.randn(8, generator=generator) + amount * tokens[window]
    return tokens
