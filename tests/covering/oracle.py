"""Algorithms 1 and 2 in NumPy, slow and obvious, straight from the paper and our reading of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def snap_to_grid(tokens: Array) -> NDArray[np.int64]:
    """Unit vectors on a grid of 2**24 steps, as integers: their products have no rounding error."""
    rows = np.zeros(tokens.shape, dtype=np.int64)
    for place, token in enumerate(tokens.astype(np.float32).astype(np.float64)):
        norm = np.sqrt((token**2).sum())
        if norm > 0:
            rows[place] = np.rint(token * (2.0**24 / norm)).astype(np.int64)
    return rows


def cosines(first: Array, second: Array) -> Array:
    table = np.zeros((len(first), len(second)))
    left, right = snap_to_grid(first), snap_to_grid(second)
    for i, u in enumerate(left):
        for j, v in enumerate(right):
            length = np.sqrt(float(u @ u) * float(v @ v))
            table[i, j] = float(u @ v) / length if length > 0 else 0.0
    return table


def choose_prompt_centers(visual: Array, prompt: Array, prompt_budget: int, fold: int) -> list[int]:
    similarity = cosines(prompt, visual)
    candidates: set[int] = set()
    for row in similarity:
        candidates.update(sorted(range(len(visual)), key=lambda v: (-row[v], v))[:fold])
    score = {v: max(row[v] for row in similarity) for v in candidates}
    return sorted(candidates, key=lambda v: (-score[v], v))[:prompt_budget]


def choose_farthest(visual: Array, start: list[int], count: int) -> list[int]:
    similarity = cosines(visual, visual)
    chosen: list[int] = []
    for _ in range(count):
        centers = start + chosen
        left = [v for v in range(len(visual)) if v not in centers]
        if centers:
            distance = {v: min(max(0.0, 1 - similarity[v, c]) for c in centers) for v in left}
        else:
            mean = snap_to_grid(visual).sum(0, keepdims=True).astype(np.float64)
            distance = {v: -_compare_with_mean(visual[v], mean[0]) for v in left}
        chosen.append(min(left, key=lambda v: (-distance[v], v)))
    return chosen


def _compare_with_mean(token: Array, mean: Array) -> float:
    """The mean keeps its float64 precision: it is a sum of integers already."""
    norm = np.sqrt((mean**2).sum())
    if norm == 0:
        return 0.0
    direction = np.rint(mean * (2.0**24 / norm)).astype(np.int64)
    unit = snap_to_grid(token[None])[0]
    length = np.sqrt(float(direction @ direction) * float(unit @ unit))
    return float(direction @ unit) / length if length > 0 else 0.0


def mob(
    visual: Array, prompt: Array, budget: int, prompt_budget: int, fold: int
) -> tuple[list[int], list[int]]:
    """Prompt centers and visual centers, in order of choice."""
    budget = min(budget, len(visual))
    nearest = (
        choose_prompt_centers(visual, prompt, min(prompt_budget, budget), fold)
        if len(prompt)
        else []
    )
    return nearest, choose_farthest(visual, nearest, budget - len(nearest))
