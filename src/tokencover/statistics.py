"""Averages and intervals for clustered questions.

Every task or question type has equal weight in an average. Questions about one scene are not
independent, so intervals resample whole scenes: clusters of examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from tokencover.errors import InputError

DRAWS: Final = 2000
"""Bootstrap samples."""


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


class Scored(Protocol):
    """An example of a task with its score from 0 to 1, None if it failed.

    Examples of one cluster are not independent.
    """

    @property
    def id(self) -> str:
        """Its name in the task."""

    @property
    def cluster(self) -> str:
        """The name of its cluster."""

    @property
    def score(self) -> float | None:
        """Its score."""


def find_mean_score(tasks: Sequence[Sequence[Scored]]) -> Interval | None:
    """Compute the mean score over tasks; None if all examples of a task failed."""
    return _compute_column_mean(
        (
            (example.cluster, column, example.score)
            for column, examples in enumerate(tasks)
            for example in examples
            if example.score is not None
        ),
        len(tasks),
    )


def compute_paired_difference(
    first: Mapping[str, Sequence[Scored]],
    second: Mapping[str, Sequence[Scored]],
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> Interval:
    """Compute the mean score over tasks of `first` minus that of `second`, with its interval.

    Both have the same examples by task; only those that failed in neither count. The bootstrap
    draws whole clusters: questions about one scene, of one task or of several, together.
    """
    if list(first) != list(second):
        raise InputError(f"the tasks {list(first)} and {list(second)} cannot be paired.")
    interval = _compute_column_mean(
        (
            (cluster, column, difference)
            for column, task in enumerate(first)
            for cluster, difference in _pair_examples(first[task], second[task], task)
        ),
        len(first),
        draws,
        seed,
    )
    if interval is None:
        raise InputError("a task has no example that both answered, so there is no difference.")
    return interval


def compute_cluster_bootstrap_ci(
    sums: NDArray[np.float64], counts: NDArray[np.bool_ | np.int64], draws: int, seed: int
) -> tuple[float, float]:
    """Compute the 95 % bootstrap interval of a mean over columns, resampling whole clusters.

    `sums` ``(clusters, columns)`` are sums over the examples of a cluster, `counts` their numbers;
    a column is a task or a question type. The mean of a column is its sum over its count, and
    columns have equal weight. A draw without examples of a column excludes it.
    """
    clusters = len(sums)
    picks = np.random.default_rng(seed).integers(clusters, size=(draws, clusters))
    picks += clusters * np.arange(draws)[:, None]
    drawn = np.bincount(picks.ravel(), minlength=draws * clusters)
    times = drawn.reshape(draws, clusters).astype(np.float64)  # float products are fast
    total, number = times @ sums, times @ counts
    columns = np.divide(total, number, out=np.zeros_like(total), where=number > 0)
    means = columns.sum(axis=1) / np.maximum(1, (number > 0).sum(axis=1))
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def _compute_column_mean(
    values: Iterable[tuple[str, int, float]], columns: int, draws: int = DRAWS, seed: int = 0
) -> Interval | None:
    """Compute from cluster, column and value of each example; None if a column has no example."""
    found = list(values)
    clusters = {name: row for row, name in enumerate(sorted({each[0] for each in found}))}
    sums = np.zeros((len(clusters), columns))
    counts = np.zeros((len(clusters), columns), dtype=np.int64)
    for cluster, column, value in found:
        sums[clusters[cluster], column] += value
        counts[clusters[cluster], column] += 1
    if not counts.any(axis=0).all():
        return None
    low, high = compute_cluster_bootstrap_ci(sums, counts, draws, seed)
    return Interval(float((sums.sum(axis=0) / counts.sum(axis=0)).mean()), low, high)


def _pair_examples(
    first: Sequence[Scored], second: Sequence[Scored], task: str
) -> list[tuple[str, float]]:
    """Return cluster and difference of each example that failed in neither."""
    if [each.id for each in first] != [each.id for each in second]:
        raise InputError(f"{task}: the results are of different examples and cannot be paired.")
    return [
        (one.cluster, one.score - two.score)
        for one, two in zip(first, second, strict=True)
        if one.score is not None and two.score is not None
    ]
