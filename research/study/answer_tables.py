"""Pebble's answers as tables, with averages and intervals that respect how its questions are made.

Every kind of question counts the same in an average, and questions about one scene are not
independent, so intervals resample whole scenes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokencover.errors import InputError
from tokencover.statistics import Interval, compute_cluster_bootstrap_ci
from tokencover_models.pebble.data import PebbleExample

Cells = NDArray[np.float64]
"""Right (1) or wrong (0) per scene and kind, shape (scenes, kinds); NaN where not asked."""


def make_table(replies: Sequence[tuple[PebbleExample, str]], kinds: Sequence[str]) -> Cells:
    """Mark every reply as right or wrong."""
    scenes = {scene: row for row, scene in enumerate(dict.fromkeys(e.scene_id for e, _ in replies))}
    columns = {kind: column for column, kind in enumerate(kinds)}
    cells = np.full((len(scenes), len(columns)), np.nan)
    for example, reply in replies:
        if example.kind in columns:
            cells[scenes[example.scene_id], columns[example.kind]] = reply == example.answer
    return cells


def average_kinds(cells: Cells) -> float:
    """Mean over kinds of the share of correct answers."""
    return float(np.nanmean(cells, axis=0).mean())


def compare_tables(first: Cells, second: Cells, draws: int = 2000, seed: int = 0) -> Interval:
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
    low, high = compute_cluster_bootstrap_ci(difference, asked, draws, seed)
    return Interval(average_kinds(first) - average_kinds(second), low, high)
