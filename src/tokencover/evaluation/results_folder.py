"""A folder of results: one file for each finished unit of work, written whole or not at all."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from tokencover.errors import InputError, TokenCoverError, WriteError
from tokencover.evaluation.plan import Scoring, Timing, Work
from tokencover.files import UNFINISHED, hold_lock, read_object, write_atomically

RUN: Final = "run.json"
FORMAT: Final = 1
PARTIAL: Final = ".partial"
"""How the name of a file ends that has the first examples of a unit that is not finished."""
LEFT_OVER: Final = (UNFINISHED, ".tmp", ".lock", PARTIAL)
"""How files end that are no results: a killed process, of this version or an earlier one, did not
finish them, or they say who is at work."""


class ResultsError(TokenCoverError):
    """A result cannot be read or written."""


@dataclass(frozen=True)
class Record:
    """One example's result.

    Attributes
    ----------
    id, cluster : str
        Of the example.
    answer : str, optional
        What the model said; None if the example failed.
    score : float, optional
        Between 0 and 1; None if the example failed, which is not the same as 0.
    tokens : int, optional
        Visual tokens left in the end.
    mean_tokens : float, optional
        Visual tokens that a decoder block worked on, on average.
    flops : float, optional
        Operations of the decoder in the prefill, as a share of those without pruning.
    failed : str, optional
        What went wrong.
    question : str, optional
        What was asked; None in results of earlier versions.
    answers : tuple of str, optional
        The right answers; None in results of earlier versions.
    """

    id: str
    cluster: str
    answer: str | None = None
    score: float | None = None
    tokens: int | None = None
    mean_tokens: float | None = None
    flops: float | None = None
    failed: str | None = None
    question: str | None = None
    answers: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        given = [each is not None for each in self._measured]
        if not (all(given) if self.failed is None else not any(given)):
            raise ValueError(f"example {self.id} is neither scored nor failed")

    @property
    def _measured(self) -> tuple[object, ...]:
        return self.answer, self.score, self.tokens, self.mean_tokens, self.flops


@dataclass(frozen=True)
class Scores:
    """What came of a `Scoring`: records, or the reason why the method cannot run.

    Attributes
    ----------
    records : tuple of Record
        One for each example.
    cannot : str, optional
        Why there are none.
    overall : float, optional
        The benchmark's own number, as a share; None if it is the mean score.
    metrics : mapping
        Everything that the benchmark counts, on its own scales.
    """

    records: tuple[Record, ...] = ()
    cannot: str | None = None
    overall: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Seconds:
    """What came of a `Timing`: times to the first token, or the reason why there are none."""

    unpruned: tuple[float, ...] = ()
    pruned: tuple[float, ...] = ()
    cannot: str | None = None

    @property
    def ratio(self) -> float | None:
        """Median with pruning over median without; None if it was not measured."""
        if self.cannot is not None or not self.pruned:
            return None
        return statistics.median(self.pruned) / statistics.median(self.unpruned)


class ResultsFolder:
    """The results of one run.

    Parameters
    ----------
    folder : Path
        Where the files lie.
    run : mapping
        What all of them have in common: model, versions, settings.
    """

    def __init__(self, folder: Path, run: Mapping[str, Any]) -> None:
        self.folder, self.run = folder, dict(run)

    @classmethod
    def open(cls, folder: Path, run: Mapping[str, Any]) -> Self:
        """Begin a folder, or go on with one.

        Raises
        ------
        InputError
            If the folder holds something else, or a run that differs; it says in what.
        """
        description = {"format": FORMAT, **run}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            found = [each.name for each in folder.iterdir() if each.suffix not in LEFT_OVER]
        except OSError as error:
            is_file = isinstance(error, FileExistsError | NotADirectoryError)
            raise (InputError if is_file else ResultsError)(
                f"{folder} cannot be a folder of results: {error}. Give another --out."
            ) from error
        if found and RUN not in found and not (folder / RUN).exists():
            raise InputError(
                f"{folder} is not a folder of results: it has no {RUN}, but {sorted(found)[0]}. "
                "Give another --out."
            )
        if (folder / RUN).exists():
            _check_same(folder, _read(folder / RUN), description)
        else:
            text = json.dumps(description, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
            _write(folder / RUN, text)
        return cls(folder, run)

    @contextmanager
    def claim(self, part: int = 0, parts: int = 1) -> Iterator[None]:
        """Work on the folder, or on one part of it, alone.

        Raises
        ------
        ResultsError
            If another process is at work on the same.
        """
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

    def check(self, work: Work) -> None:
        """Refuse a finished unit that cannot be read."""
        if isinstance(work, Scoring):
            self.read_scores(work)
        else:
            self.read_seconds(work)

    def read_partial(self, work: Scoring) -> tuple[Record, ...]:
        """Records of the first examples of an unfinished unit, as `write_partial` saved them.

        Raises
        ------
        ResultsError
            If the file is damaged or belongs to another unit or run.
        """
        path = self._name_partial(work)
        if not path.exists():
            return ()
        found = self._read(work, path)
        try:
            return read_scores(found).records
        except (KeyError, TypeError, ValueError) as error:
            raise _make_damage_error(path, str(error)) from error

    def write_partial(self, work: Scoring, records: Sequence[Record]) -> None:
        """Save the first examples of a unit; `write` of the finished unit deletes the file."""
        content = {**work.identity, "run": self.run}
        _write(self._name_partial(work), _make_text(content, _list_rows(records)))

    def discard_partial(self, work: Work) -> None:
        """Delete what was saved of a unit that is finished."""
        self._name_partial(work).unlink(missing_ok=True)

    def _name_partial(self, work: Work) -> Path:
        return self.folder / f"{work.file}{PARTIAL}"

    def read_scores(self, work: Scoring) -> Scores:
        """Read a finished unit."""
        found = self._read(work)
        if "cannot" in found:
            return Scores(cannot=str(found["cannot"]))
        try:
            return read_scores(found)
        except (KeyError, TypeError, ValueError) as error:
            raise _make_damage_error(self.folder / work.file, str(error)) from error

    def read_seconds(self, work: Timing) -> Seconds:
        """Read a finished unit."""
        found = self._read(work)
        if "cannot" in found:
            return Seconds(cannot=str(found["cannot"]))
        try:
            return Seconds(tuple(map(float, found["unpruned"])), tuple(map(float, found["pruned"])))
        except (KeyError, TypeError, ValueError) as error:
            raise _make_damage_error(self.folder / work.file, str(error)) from error

    def write(self, work: Work, result: Scores | Seconds) -> None:
        """Write a finished unit, whole or not at all."""
        rows = None
        content = {**work.identity, "run": self.run}
        if isinstance(work, Scoring) and work.task.source:
            content["source"] = work.task.source
        if isinstance(work, Scoring) and work.task.max_new_tokens is not None:
            content["generation"] = {
                "do_sample": False,
                "max_new_tokens": work.task.max_new_tokens,
                "until": list(work.task.stops),
            }
        if result.cannot is not None:
            content["cannot"] = result.cannot
        elif isinstance(result, Scores):
            if result.overall is not None:
                content["overall"] = result.overall
            if result.metrics:
                content["metrics"] = dict(result.metrics)
            rows = _list_rows(result.records)
        else:
            content.update(unpruned=result.unpruned, pruned=result.pruned)
        _write(self.folder / work.file, _make_text(content, rows))
        self.discard_partial(work)

    def _read(self, work: Work, path: Path | None = None) -> dict[str, Any]:
        path = path or self.folder / work.file
        found = _read(path)
        expected = json.loads(json.dumps({**work.identity, "run": self.run}))
        wrong = [key for key, value in expected.items() if found.get(key) != value]
        if wrong:
            raise _make_damage_error(path, f"it has another {wrong[0]}")
        return found


def read_scores(content: Mapping[str, Any]) -> Scores:
    """What a file of scores says; raises `KeyError`, `TypeError`, `ValueError` if it is damaged."""
    overall = content.get("overall")
    return Scores(
        tuple(map(_read_record, content["examples"])),
        overall=None if overall is None else float(overall),
        metrics={name: float(value) for name, value in content.get("metrics", {}).items()},
    )


def _read_record(row: Mapping[str, Any]) -> Record:
    """A record as a file has it."""
    answers = row.get("answers")
    return Record(**{**row, "answers": None if answers is None else tuple(map(str, answers))})


def _make_text(content: Mapping[str, Any], rows: list[dict[str, Any]] | None) -> str:
    """JSON with a line for each example."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    if rows is None:
        return text + "\n"
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows]
    return text.removesuffix("\n}") + ',\n "examples": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"


def _list_rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    return [_drop_missing(dataclasses.asdict(record)) for record in records]


def _drop_missing(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if value is not None}


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_object(path)
    except ValueError as error:
        raise _make_damage_error(path, str(error)) from error
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error}.") from error


def _make_damage_error(path: Path, why: str) -> ResultsError:
    return ResultsError(
        f"{path} is damaged or not of this run ({why}). Delete it, and the same command makes it "
        "again; or give another --out."
    )


def _write(path: Path, text: str) -> None:
    try:
        write_atomically(path, text)
    except WriteError as error:
        raise ResultsError(
            f"{error} What was finished before is safe in {path.parent}, and the same command "
            "resumes there."
        ) from error


def _check_same(folder: Path, there: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    old, new = _flatten(there), _flatten(json.loads(json.dumps(now)))
    differing = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
    if differing:
        shown = "; ".join(f"{key} was {old.get(key)!r}, now {new.get(key)!r}" for key in differing)
        raise InputError(
            f"{folder} holds another run, and results do not mix: {shown}. Give the same as there, "
            "or another --out."
        )


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        nested = isinstance(value, Mapping)
        leaves.update(_flatten(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value})
    return leaves
