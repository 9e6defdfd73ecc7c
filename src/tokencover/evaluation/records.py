"""Results of units of work, and the JSON files that contain them."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokencover.errors import TokenCoverError
from tokencover.evaluation.plan import Combination, Scoring, Work
from tokencover.files import read_object
from tokencover.methods import from_json


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
        The model's answer; None if the example failed.
    score : float, optional
        Between 0 and 1; None if the example failed, which is not the same as 0.
    tokens : int, optional
        Visual tokens kept after the last pruning step.
    mean_tokens : float, optional
        Mean number of visual tokens per decoder layer.
    flops : float, optional
        Prefill FLOPs of the decoder, as a fraction of those without pruning.
    failed : str, optional
        The error, if the example failed.
    question : str, optional
        The question; None in results of earlier versions.
    answers : tuple of str, optional
        The reference answers; None in results of earlier versions.
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
        measured = self.answer, self.score, self.tokens, self.mean_tokens, self.flops
        given = [value is not None for value in measured]
        if not (all(given) if self.failed is None else not any(given)):
            raise ValueError(f"example {self.id} is neither scored nor failed")


@dataclass(frozen=True)
class Scores:
    """Result of a `Scoring`: one record per example, or the reason why the method cannot run.

    `overall` is the benchmark's own score as a fraction, None if it is the mean score; `metrics`
    has all metrics of the benchmark, on its own scales.
    """

    records: tuple[Record, ...] = ()
    cannot: str | None = None
    overall: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Seconds:
    """Result of a `Timing`: times to the first token, or the reason why there are none."""

    unpruned: tuple[float, ...] = ()
    pruned: tuple[float, ...] = ()
    cannot: str | None = None

    @property
    def ratio(self) -> float | None:
        """Median with pruning over median without; None if it was not measured."""
        if self.cannot is not None or not self.pruned:
            return None
        return statistics.median(self.pruned) / statistics.median(self.unpruned)


@dataclass(frozen=True)
class StoredUnit:
    """One result file, readable without the task and the model that produced it."""

    combination: Combination
    task: str
    group: str
    version: str
    source: str
    result: Scores | Seconds


def read_unit(path: Path, run: Mapping[str, Any] | None = None) -> StoredUnit:
    """Read a result file; raises `ResultsError` if it is damaged or belongs to another run."""
    content = read_results_object(path)
    if run is not None and content.get("run") != run:
        raise make_damage_error(path, "it is not a result of this run")
    try:
        method = content["method"]
        return StoredUnit(
            Combination(None if method is None else from_json(json.dumps(method))),
            str(content["task"]),
            str(content.get("group", "")),
            str(content.get("version", "")),
            str(content.get("source", "")),
            parse_result(content),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise make_damage_error(path, f"{type(error).__name__}: {error}") from error


def parse_result(content: Mapping[str, Any]) -> Scores | Seconds:
    """Return the result in a file's content.

    Raises `KeyError`, `TypeError` or `ValueError` if it is damaged.
    """
    cannot = str(content["cannot"]) if "cannot" in content else None
    if content["kind"] == "timing":
        if cannot is not None:
            return Seconds(cannot=cannot)
        return Seconds(tuple(map(float, content["unpruned"])), tuple(map(float, content["pruned"])))
    if content["kind"] != "scores":
        raise ValueError(f"{content['kind']!r} is not a kind of result")
    if cannot is not None:
        return Scores(cannot=cannot)
    overall = content.get("overall")
    return Scores(
        tuple(map(_parse_record, content["examples"])),
        overall=None if overall is None else float(overall),
        metrics={name: float(value) for name, value in content.get("metrics", {}).items()},
    )


def write_result(work: Work, run: Mapping[str, Any], result: Scores | Seconds) -> str:
    """Return the text of a unit's file."""
    rows = None
    content = {**work.identity, "run": run}
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
        rows = result.records
    else:
        content.update(unpruned=result.unpruned, pruned=result.pruned)
    return write_content(content, rows)


def write_content(content: Mapping[str, Any], records: Iterable[Record] | None) -> str:
    """Return JSON with one line for each record."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    if records is None:
        return text + "\n"
    lines = [
        json.dumps(_drop_missing(record), ensure_ascii=False, allow_nan=False) for record in records
    ]
    return text.removesuffix("\n}") + ',\n "examples": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"


def read_results_object(path: Path) -> dict[str, Any]:
    """Read a JSON object of a results folder; raises `ResultsError`."""
    try:
        return read_object(path)
    except ValueError as error:
        raise make_damage_error(path, str(error)) from error
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error}.") from error


def make_damage_error(path: Path, why: str) -> ResultsError:
    """Return the error of a file that cannot be used."""
    return ResultsError(
        f"{path} is damaged or does not belong to this run ({why}). Delete it and run the command "
        "that wrote this folder again, or give another --out."
    )


def _parse_record(row: Mapping[str, Any]) -> Record:
    answers = row.get("answers")
    return Record(**{**row, "answers": None if answers is None else tuple(map(str, answers))})


def _drop_missing(record: Record) -> dict[str, Any]:
    fields = dataclasses.asdict(record)
    return {key: value for key, value in fields.items() if value is not None}
