"""Averages and intervals that respect how questions hang together.

Every task, or kind of question, counts the same in an average, and questions about one scene are
not independent, so intervals resample whole scenes: clusters of examples.
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
    """A mean with the ends of its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


class Scored(Protocol):
    """An example with its score: None if it failed, which is not the same as 0."""

    @property
    def id(self) -> str:
        """Tells examples of a task apart."""

    @property
    def cluster(self) -> str:
        """Examples with the same one are not independent."""

    @property
    def score(self) -> float | None:
        """Between 0 and 1."""


def find_mean_score(tasks: Sequence[Sequence[Scored]]) -> Interval | None:
    """Mean score over tasks, with its interval; None if all examples of a task failed."""
    return _find_column_mean(
        (
            (example.cluster, column, example.score)
            for column, examples in enumerate(tasks)
            for example in examples
            if example.score is not None
        ),
        len(tasks),
    )


def find_paired_difference(
    first: Mapping[str, Sequence[Scored]],
    second: Mapping[str, Sequence[Scored]],
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> Interval:
    """Mean score over tasks of `first` minus that of `second`, with its interval.

    Only examples that neither failed count, so both are measured on the same. The bootstrap draws
    whole clusters: questions about one scene, be they of one task or of several, come together.

    Parameters
    ----------
    first, second : mapping
        The same examples, by task.
    draws : int
        Bootstrap samples.
    seed : int
        Of the bootstrap: the same one gives the same interval.
    """
    if list(first) != list(second):
        raise InputError(f"the tasks {list(first)} and {list(second)} cannot be paired.")
    found = _find_column_mean(
        (
            (cluster, column, difference)
            for column, task in enumerate(first)
            for cluster, difference in _pair_examples(first[task], second[task], task)
        ),
        len(first),
        draws,
        seed,
    )
    if found is None:
        raise InputError("a task has no example that both answered, so there is no difference.")
    return found


def find_clustered_interval(
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
    picks += clusters * np.arange(draws)[:, None]
    drawn = np.bincount(picks.ravel(), minlength=draws * clusters)
    times = drawn.reshape(draws, clusters).astype(np.float64)  # products of floats are quick
    total, number = times @ sums, times @ counts
    columns = np.divide(total, number, out=np.zeros_like(total), where=number > 0)
    means = columns.sum(axis=1) / np.maximum(1, (number > 0).sum(axis=1))
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def _find_column_mean(
    values: Iterable[tuple[str, int, float]], columns: int, draws: int = DRAWS, seed: int = 0
) -> Interval | None:
    """From the cluster, column and value of each example; None if a column has no example."""
    found = list(values)
    clusters = {name: row for row, name in enumerate(sorted({each[0] for each in found}))}
    sums = np.zeros((len(clusters), columns))
    counts = np.zeros((len(clusters), columns), dtype=np.int64)
    for cluster, column, value in found:
        sums[clusters[cluster], column] += value
        counts[clusters[cluster], column] += 1
    if not counts.any(axis=0).all():
        return None
    low, high = find_clustered_interval(sums, counts, draws, seed)
    return Interval(float((sums.sum(axis=0) / counts.sum(axis=0)).mean()), low, high)


def _pair_examples(
    first: Sequence[Scored], second: Sequence[Scored], task: str
) -> list[tuple[str, float]]:
    """Cluster and difference of each example that neither failed."""
    if [each.id for each in first] != [each.id for each in second]:
        raise InputError(f"{task}: the results are of other examples, so they cannot be paired.")
    return [
        (one.cluster, one.score - two.score)
        for one, two in zip(first, second, strict=True)
        if one.score is not None and two.score is not None
    ]
