"""Averages and intervals that respect how the benchmark is made.

Every kind of question counts the same in an average, and questions about one scene are not
independent, so intervals resample whole scenes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Interval:
    """A mean with the ends of its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


def clustered_interval(
    sums: NDArray[np.float64], counts: NDArray[np.bool_ | np.int64], draws: int, seed: int
) -> tuple[float, float]:
    """Ends of the 95 % bootstrap interval of a mean over columns, resampling whole clusters.

    Parameters
    ----------
    sums
        ``(clusters, columns)``, what the examples of a cluster add up to; a column is a kind of
        question, or a task.
    counts
        ``(clusters, columns)``, how many examples those are; a column's mean is its sum over its
        count, and columns count the same. A draw that has none of a column leaves it out.
    draws
        Bootstrap samples.
    seed
        Of the bootstrap.
    """
    clusters = len(sums)
    picks = np.random.default_rng(seed).integers(clusters, size=(draws, clusters))
    times = np.zeros((draws, clusters))
    np.add.at(times, (np.arange(draws)[:, None], picks), 1)
    total, number = times @ sums, times @ counts
    columns = np.divide(total, number, out=np.zeros_like(total), where=number > 0)
    means = columns.sum(axis=1) / np.maximum(1, (number > 0).sum(axis=1))
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)
