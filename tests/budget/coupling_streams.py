"""Coupling values with known groups."""

from __future__ import annotations

import random

SPREAD = 0.02


def two_heaps(
    count: int, *, low: float = 1.30, high: float = 1.45, share: float = 0.5, seed: int = 0
) -> list[float]:
    """Two normal groups in random order; `share` of the values are in the lower one."""
    lot = random.Random(seed)
    return [lot.gauss(low if lot.random() < share else high, SPREAD) for _ in range(count)]


def one_heap(count: int, *, mean: float = 1.40, seed: int = 0) -> list[float]:
    """One normal group."""
    lot = random.Random(seed)
    return [lot.gauss(mean, SPREAD) for _ in range(count)]
