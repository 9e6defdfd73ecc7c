"""Results of a run that are kept nowhere: the same calls as those of a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tokencover.evaluation.plan import Scoring, Timing, Work
from tokencover.evaluation.results_folder import Record, ResultsFolder, Scores, Seconds


class ResultsInMemory:
    """What `ResultsFolder` is, until the program ends.

    Parameters
    ----------
    run : mapping
        What all results have in common: model, versions, settings.
    """

    def __init__(self, run: Mapping[str, Any]) -> None:
        self.run = dict(run)
        self._scores: dict[str, Scores] = {}
        self._seconds: dict[str, Seconds] = {}

    @contextmanager
    def claim(self, part: int = 0, parts: int = 1) -> Iterator[None]:
        """No other process can be at work here."""
        yield

    def is_finished(self, work: Work) -> bool:
        """Whether a unit of work is done."""
        return work.file in self._scores or work.file in self._seconds

    def check(self, work: Work) -> None:
        """Nothing here can be damaged."""

    def read_partial(self, work: Scoring) -> tuple[Record, ...]:
        """Nothing is kept of a unit that was interrupted."""
        return ()

    def write_partial(self, work: Scoring, records: Sequence[Record]) -> None:
        """Nothing is kept of a unit that was interrupted."""

    def discard_partial(self, work: Work) -> None:
        """There is nothing to delete."""

    def read_scores(self, work: Scoring) -> Scores:
        """What came of a finished unit."""
        return self._scores[work.file]

    def read_seconds(self, work: Timing) -> Seconds:
        """What came of a finished unit."""
        return self._seconds[work.file]

    def write(self, work: Work, result: Scores | Seconds) -> None:
        """Keep what came of a unit."""
        if isinstance(result, Scores):
            self._scores[work.file] = result
        else:
            self._seconds[work.file] = result


ResultsStore = ResultsFolder | ResultsInMemory
"""Where finished units of work go."""
