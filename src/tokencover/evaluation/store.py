"""Stores of finished units of work: a folder with one file per unit, or memory.

Files are written whole or not at all. Unfinished units and the commands that wrote a folder are
saved beside the results.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Self

from tokencover.errors import InputError, WriteError
from tokencover.evaluation.plan import Scoring, Work
from tokencover.evaluation.records import (
    Record,
    ResultsError,
    Scores,
    Seconds,
    make_damage_error,
    parse_result,
    read_results_object,
    write_content,
    write_result,
)
from tokencover.evaluation.tasks import Example
from tokencover.files import UNFINISHED, hold_lock, write_atomically
from tokencover.pruning import TensorParallelGroup

RUN: Final = "run.json"
FORMAT: Final = 1
PARTIAL: Final = ".partial"
"""Suffix of files with the first examples of an unfinished unit."""
LEFT_OVER: Final = (UNFINISHED, ".tmp", ".lock", PARTIAL)
"""Suffixes of files that are not results: locks, and what a killed process left."""
COMMANDS: Final = "commands.txt"
"""The commands that wrote a folder, one per line, each only once."""
SAVE_EVERY: Final = 30.0
"""Seconds between two saves: a killed process loses these, and the batch it was working on."""


class ResultsFolder:
    """The results of one run in a folder.

    `run` has what all results have in common: model, versions, settings.
    """

    def __init__(self, folder: Path, run: Mapping[str, Any]) -> None:
        self.folder, self.run = folder, dict(run)

    @classmethod
    def open(cls, folder: Path, run: Mapping[str, Any]) -> Self:
        """Create a folder, or resume one of the same run.

        Raises `InputError` if the folder contains something else, or another run.
        """
        description = {"format": FORMAT, **run}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            names = [path.name for path in folder.iterdir() if path.suffix not in LEFT_OVER]
        except OSError as error:
            is_file = isinstance(error, FileExistsError | NotADirectoryError)
            raise (InputError if is_file else ResultsError)(
                f"{folder} cannot be a folder of results: {error}. Give another --out."
            ) from error
        if names and RUN not in names and not (folder / RUN).exists():
            raise InputError(
                f"{folder} is not a folder of results: it has no {RUN}, but {sorted(names)[0]}. "
                "Give another --out."
            )
        if (folder / RUN).exists():
            _check_same(folder, read_results_object(folder / RUN), description)
        else:
            text = json.dumps(description, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
            _write(folder / RUN, text)
        return cls(folder, run)

    @contextmanager
    def claim(self, part: int = 0, parts: int = 1) -> Iterator[None]:
        """Lock the folder, or one part of it; raises `ResultsError` if another process has it."""
        whole = self.folder / ".results.lock"
        own = self.folder / f".part-{part}-of-{parts}.lock"
        with ExitStack() as stack:
            is_free = stack.enter_context(hold_lock(whole, shared=parts > 1))
            if parts > 1:
                is_free = stack.enter_context(hold_lock(own)) and is_free
            if not is_free:
                raise ResultsError(
                    f"another process is writing results to {self.folder}: wait for it, give "
                    "another --out, or share the work with --shard 0/2 and --shard 1/2."
                )
            yield

    def is_finished(self, work: Work) -> bool:
        """Whether a unit of work is done."""
        return (self.folder / work.file).exists()

    def read(self, work: Work) -> Any:
        """Read the `Scores` or `Seconds` of a finished unit; raises `ResultsError` if damaged."""
        return self._read(work, self.folder / work.file)

    def write(self, work: Work, result: Scores | Seconds) -> None:
        """Write a finished unit, and delete its partial file."""
        _write(self.folder / work.file, write_result(work, self.run, result))
        self.discard_partial(work)

    def read_partial(self, work: Scoring) -> tuple[Record, ...]:
        """Read the first records of an unfinished unit; raises `ResultsError` if damaged."""
        path = self._get_partial_path(work)
        if not path.exists():
            return ()
        records: tuple[Record, ...] = self._read(work, path).records
        return records

    def write_partial(self, work: Scoring, records: Sequence[Record]) -> None:
        """Save the first records of an unfinished unit."""
        content = {**work.identity, "run": self.run}
        _write(self._get_partial_path(work), write_content(content, records))

    def discard_partial(self, work: Work) -> None:
        """Delete the partial file of a finished unit."""
        self._get_partial_path(work).unlink(missing_ok=True)

    def _get_partial_path(self, work: Work) -> Path:
        return self.folder / f"{work.file}{PARTIAL}"

    def _read(self, work: Work, path: Path) -> Any:
        content = read_results_object(path)
        expected = json.loads(json.dumps({**work.identity, "run": self.run}))
        wrong = [key for key, value in expected.items() if content.get(key) != value]
        if wrong:
            raise make_damage_error(path, f"it has another {wrong[0]}")
        try:
            return parse_result(content)
        except (KeyError, TypeError, ValueError) as error:
            raise make_damage_error(path, str(error)) from error


class ResultsInMemory:
    """The same store without files; it lasts as long as the program."""

    def __init__(self, run: Mapping[str, Any]) -> None:
        self.run = dict(run)
        self._results: dict[str, Scores | Seconds] = {}

    @contextmanager
    def claim(self, part: int = 0, parts: int = 1) -> Iterator[None]:
        """No other process can write here."""
        yield

    def is_finished(self, work: Work) -> bool:
        """Whether a unit of work is done."""
        return work.file in self._results

    def read(self, work: Work) -> Any:
        """Return a finished unit."""
        return self._results[work.file]

    def write(self, work: Work, result: Scores | Seconds) -> None:
        """Keep a finished unit."""
        self._results[work.file] = result

    def read_partial(self, work: Scoring) -> tuple[Record, ...]:
        """Nothing is kept of an interrupted unit."""
        return ()

    def write_partial(self, work: Scoring, records: Sequence[Record]) -> None:
        """Nothing is kept of an interrupted unit."""

    def discard_partial(self, work: Work) -> None:
        """There is nothing to delete."""


ResultsStore = ResultsFolder | ResultsInMemory


class SharedResults:
    """A store that the first rank of tensor parallelism reads and writes, and shares.

    All ranks make the same calls in the same order. What the first rank's call returns or raises
    is returned or raised on all of them.
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
        """See `ResultsFolder.write_partial`; ranks call it by their own clocks."""
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


class PartialScores:
    """Saves the first records of a unit, and loads them when the unit is resumed."""

    def __init__(
        self, results: ResultsStore, work: Scoring, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._results, self._work, self._clock = results, work, clock
        self._last_save, self._num_saved = clock(), 0

    def load(self, examples: Sequence[Example], batch_size: int, keep_going: bool) -> list[Record]:
        """Return records of whole batches that need not be answered again.

        Only whole batches, to form the same batches as an uninterrupted run. Without `keep_going`
        the batch with the first failed example is answered again, because it must end the run.
        """
        records = list(self._results.read_partial(self._work))
        ids = [record.id for record in records]
        if ids != [example.id for example in examples[: len(ids)]]:
            raise ResultsError(
                f"the saved part of {self._work.file} has other examples than "
                f"{self._work.task.name} has now: delete {self._work.file}.partial, and the same "
                "command starts this unit from its first example."
            )
        failed = [index for index, record in enumerate(records) if record.failed is not None]
        usable = failed[0] if failed and not keep_going else len(records)
        if usable < len(examples):
            usable -= usable % batch_size
        self._num_saved = usable
        return records[:usable]

    def save(self, records: Sequence[Record], *, now: bool = False) -> None:
        """Save the records of all finished batches if the last save is old enough, or `now`."""
        is_due = now or self._clock() - self._last_save >= SAVE_EVERY
        if is_due and len(records) > self._num_saved:
            self._results.write_partial(self._work, records)
            self._last_save, self._num_saved = self._clock(), len(records)


def record_command(folder: Path, command: str) -> None:
    """Add a command to those that wrote a folder of results."""
    line = " ".join(command.splitlines())
    commands = read_commands(folder)
    if line not in commands:
        write_atomically(folder / COMMANDS, "".join(f"{each}\n" for each in [*commands, line]))


def read_commands(folder: Path) -> list[str]:
    """Return the commands that wrote a folder; none if Python code or an earlier version did."""
    path = folder / COMMANDS
    if not path.exists():
        return []
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"Cannot read {path}: {error}. Delete it if it is damaged.") from error


def _write(path: Path, text: str) -> None:
    try:
        write_atomically(path, text)
    except WriteError as error:
        raise ResultsError(
            f"{error} What was finished before is safe in {path.parent}, and the same command "
            "resumes there."
        ) from error


def _check_same(folder: Path, stored: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    old, new = _flatten(stored), _flatten(json.loads(json.dumps(now)))
    differing = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
    if differing:
        listed = "; ".join(f"{key} was {old.get(key)!r}, now {new.get(key)!r}" for key in differing)
        raise InputError(
            f"{folder} contains another run, and results of two runs do not mix: {listed}. Use the "
            "same settings as that run, or give another --out."
        )


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        nested = isinstance(value, Mapping)
        leaves.update(_flatten(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value})
    return leaves
