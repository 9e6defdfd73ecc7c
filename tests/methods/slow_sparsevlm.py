"""SparseVLM's formulas, slowly written down: loops in float64."""

from __future__ import annotations

import math

from torch import Tensor


def clusters_of(dropped: int) -> int:
    return int((int(0.3 * dropped) + 1) / 10) + 1


def slow_raters(visual: Tensor, words: Tensor) -> list[int]:
    share = [0.0] * len(words)
    for token in visual.double():
        products = [float(token @ word) for word in words.double()]
        top = max(products)
        weights = [math.exp(each - top) for each in products]
        for number, weight in enumerate(weights):
            share[number] += weight / sum(weights) / len(visual)
    mean = sum(share) / len(share)
    chosen = [number for number, each in enumerate(share) if each > mean]
    return chosen or list(range(len(words)))


def slow_clusters(points: Tensor, count: int) -> tuple[list[int], list[int]]:
    """Centres, and the number of the center that each point belongs to."""
    values, size, width = points.double(), len(points), points.shape[1]
    far = [
        [float((values[i] - values[j]).norm()) / math.sqrt(width) for j in range(size)]
        for i in range(size)
    ]
    density = [math.exp(-sum(each**2 for each in sorted(row)[:count]) / count) for row in far]
    score = []
    for i in range(size):
        denser = [
            far[i][j]
            for j in range(size)
            if density[j] > density[i] or (density[j] == density[i] and j < i)
        ]
        delta = min(denser) if denser else max(max(row) for row in far)
        score.append(density[i] * delta)
    centers = sorted(range(size), key=lambda i: (-score[i], i))[:count]
    owner = [
        centers.index(i) if i in centers else min(range(count), key=lambda c: far[i][centers[c]])
        for i in range(size)
    ]
    return centers, owner


def slow_stage(
    states: Tensor, scores: Tensor, left: int
) -> tuple[list[int], list[int], list[Tensor]]:
    """Kept tokens ascending, centers, and the states of the clusters."""
    count = len(states)
    order = sorted(range(count), key=lambda i: (-float(scores[i]), i))
    fitting = [k for k in range(1, count) if k + clusters_of(count - k) == left]
    kept = max(fitting) if fitting else 1
    recycled = sorted(order[kept : kept + int(0.3 * (count - kept)) + 1])
    if left == kept:
        return sorted(order[:kept]), [], []
    centers, owner = slow_clusters(states[recycled], left - kept)
    members = [[i for i, own in zip(recycled, owner, strict=True) if own == c] for c in range(left)]
    means = [states[each].double().sum(0) / len(each) for each in members[: len(centers)]]
    return sorted(order[:kept]), [recycled[c] for c in centers], means
