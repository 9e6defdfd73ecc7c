"""Results of ranks that answer together, under tensor parallelism."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tokencover.evaluation.plan import Scoring
from tokencover.evaluation.results_folder import Record
from tokencover.evaluation.results_memory import ResultsStore
from tokencover.pruning import TensorParallelGroup


class SharedResults:
    """A `ResultsStore` that the first rank reads and writes; the others get what it read.

    All ranks make the same calls in the same order. What the first rank's call returns or raises
    is returned or raised on all of them.

    Parameters
    ----------
    ranks : TensorParallelGroup
        The ranks that run the model together.
    open_results : callable
        Opens the store; called on the first rank only.
    """

    def __init__(
        self, ranks: TensorParallelGroup, open_results: Callable[[], ResultsStore]
    ) -> None:
        self._ranks = ranks
        self._results: Any = None
        self.run = self._share(lambda: self._open(open_results))

    def _open(self, open_results: Callable[[], ResultsStore]) -> Any:
        self._results = open_results()
        return self._results.run

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """A method of the store."""
        return lambda *arguments: self._share(lambda: getattr(self._results, name)(*arguments))

    @contextmanager
    def claim(self, part: int = 0, parts: int = 1) -> Iterator[None]:
        """See `ResultsFolder.claim`."""
        with ExitStack() as stack:
            self._share(lambda: stack.enter_context(self._results.claim(part, parts)))
            yield

    def write_partial(self, work: Scoring, records: Sequence[Record]) -> None:
        """See `ResultsFolder.write_partial`; each rank calls it when its own clock says so."""
        if self._ranks.is_first:
            self._results.write_partial(work, records)

    def _share(self, call: Callable[[], Any]) -> Any:
        value, error = None, None
        if self._ranks.is_first:
            try:
                value = call()
            except Exception as raised:
                error = raised
        value, error = self._ranks.share((value, error))
        if error is not None:
            raise error
        return value
