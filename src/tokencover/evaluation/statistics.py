"""Differences between two methods, with intervals that respect how examples hang together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tokencover.errors import InputError
from tokencover.evaluation.results import Record
from tokencover.statistics import Interval, clustered_interval

__all__ = ["Interval", "paired_difference"]


def paired_difference(
    first: Mapping[str, Sequence[Record]],
    second: Mapping[str, Sequence[Record]],
    *,
    draws: int = 2000,
    seed: int = 0,
) -> Interval:
    """Mean accuracy over tasks of `first` minus that of `second`, with a 95 % bootstrap interval.

    Only examples that neither failed count, so both are measured on the same. The bootstrap draws
    whole clusters: questions about one scene, be they of one task or of several, come together.

    Parameters
    ----------
    first, second : mapping
        Records of the same examples, by task.
    draws : int
        Bootstrap samples.
    seed : int
        Of the bootstrap: the same one gives the same interval.
    """
    if list(first) != list(second):
        raise InputError(f"the tasks {list(first)} and {list(second)} cannot be paired.")
    found = [
        (cluster, column, difference)
        for column, task in enumerate(first)
        for cluster, difference in _pairs(first[task], second[task], task)
    ]
    clusters = {name: row for row, name in enumerate(sorted({each[0] for each in found}))}
    sums, counts = np.zeros((2, len(clusters), len(first)))
    for cluster, column, difference in found:
        sums[clusters[cluster], column] += difference
        counts[clusters[cluster], column] += 1
    if not counts.any(axis=0).all():
        raise InputError("a task has no example that both answered, so there is no difference.")
    low, high = clustered_interval(sums, counts.astype(np.int64), draws, seed)
    return Interval(float((sums.sum(axis=0) / counts.sum(axis=0)).mean()), low, high)


def _pairs(first: Sequence[Record], second: Sequence[Record], task: str) -> list[tuple[str, float]]:
    """Cluster and difference of each example that neither failed."""
    if [each.id for each in first] != [each.id for each in second]:
        raise InputError(f"{task}: the results are of other examples, so they cannot be paired.")
    return [
        (one.cluster, one.score - two.score)
        for one, two in zip(first, second, strict=True)
        if one.score is not None and two.score is not None
    ]
