"""Examples of a unit of work that are saved before the unit is finished."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from tokencover.evaluation.plan import Scoring
from tokencover.evaluation.results_folder import Record, ResultsError
from tokencover.evaluation.results_memory import ResultsStore
from tokencover.evaluation.tasks import Example

SAVE_EVERY: Final = 30.0
"""Seconds between two saves: a killed process loses these, and the batch it was working on."""


class PartialScores:
    """Saves the first examples of a unit, and loads them when the unit is resumed.

    Parameters
    ----------
    results : ResultsFolder or ResultsInMemory
        Where they are saved.
    work : Scoring
        The unit.
    clock : callable
        Returns seconds.
    """

    def __init__(
        self, results: ResultsStore, work: Scoring, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._results, self._work, self._clock = results, work, clock
        self._last_save, self._num_saved = clock(), 0

    def load(self, examples: Sequence[Example], batch_size: int, keep_going: bool) -> list[Record]:
        """Records of whole batches that need not be answered again.

        Only whole batches, so that the remaining ones are those of an uninterrupted run. Without
        `keep_going` the batch with the first failed example is answered again, because it must end
        the run.

        Raises
        ------
        ResultsError
            If the saved records are of other examples.
        """
        records = list(self._results.read_partial(self._work))
        ids = [each.id for each in records]
        if ids != [each.id for each in examples[: len(ids)]]:
            raise ResultsError(
                f"the saved part of {self._work.file} has other examples than "
                f"{self._work.task.name} has now: delete {self._work.file}.partial, and the same "
                "command starts this unit from its first example."
            )
        failed = [index for index, each in enumerate(records) if each.failed is not None]
        usable = failed[0] if failed and not keep_going else len(records)
        if usable < len(examples):
            usable -= usable % batch_size
        self._num_saved = usable
        return records[:usable]

    def save(self, records: Sequence[Record], *, now: bool = False) -> None:
        """Save the records of all finished batches, if it is time to, or `now`."""
        is_due = now or self._clock() - self._last_save >= SAVE_EVERY
        if is_due and len(records) > self._num_saved:
            self._results.write_partial(self._work, records)
            self._last_save, self._num_saved = self._clock(), len(records)
