"""Averages and intervals that respect how the benchmark is made.

Every kind of question counts the same in an average, and questions about one scene are not
independent, so intervals resample whole scenes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokencover.errors import InputError
from tokencover.pebble.benchmark import Asked

Results = Sequence[tuple[Asked, str]]


@dataclass(frozen=True)
class Interval:
    """A mean with the ends of its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


def table(results: Results, kinds: Sequence[str]) -> NDArray[np.float64]:
    """Right (1) or wrong (0) per scene and kind, shape (scenes, kinds); NaN where not asked."""
    scenes = {scene: row for row, scene in enumerate(dict.fromkeys(e.scene_id for e, _ in results))}
    columns = {kind: column for column, kind in enumerate(kinds)}
    cells = np.full((len(scenes), len(columns)), np.nan)
    for example, reply in results:
        if example.kind in columns:
            cells[scenes[example.scene_id], columns[example.kind]] = reply == example.answer
    return cells


def average(cells: NDArray[np.float64]) -> float:
    """Mean over kinds of the share of right answers."""
    return float(np.nanmean(cells, axis=0).mean())


def paired_difference(
    first: NDArray[np.float64], second: NDArray[np.float64], draws: int = 2000, seed: int = 0
) -> Interval:
    """Average of `first` minus average of `second`, over the same scenes.

    Parameters
    ----------
    first, second
        Two tables of the same scenes and kinds.
    draws
        Bootstrap samples of scenes.
    seed
        Of the bootstrap.
    """
    if first.shape != second.shape:
        raise InputError(
            f"tables of shapes {first.shape} and {second.shape} cannot be paired; "
            "answer the same examples with both"
        )
    asked = ~np.isnan(first - second)
    difference = np.where(asked, first - second, 0.0)
    low, high = clustered_interval(difference, asked, draws, seed)
    return Interval(average(first) - average(second), low, high)


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
