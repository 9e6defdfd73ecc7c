"""Judges a folder of results: writes another folder with the scores of a language model."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from tokencover.errors import InputError
from tokencover.evaluation.judge import ATTEMPTS, Judge, JudgeError, Verdict
from tokencover.evaluation.plan import Scoring
from tokencover.evaluation.records import (
    Record,
    ResultsError,
    Scores,
    read_results_object,
    read_unit,
)
from tokencover.evaluation.scoring import ResultRow
from tokencover.evaluation.store import FORMAT, RUN, ResultsFolder
from tokencover.evaluation.tasks import Example, Task
from tokencover.files import name_path, read_document, write_document

QUESTIONS: Final = "questions"
"""Folder with questions and reference answers, below that of results."""
KIND: Final = "tokencover questions"
VERSION: Final = 1
VERDICTS: Final = "verdicts.jsonl"
UNREADABLE: Final = "the judge's reply cannot be read"
HOPELESS: Final = 10
"""Unreadable replies without a single readable one that end the run."""

Query = tuple[str, str, str]
"""A question, the reference answer, and the answer to judge."""


def save_questions(folder: Path, tasks: Iterable[Task]) -> None:
    """Write questions and reference answers of judged tasks beside the results."""
    for task in {each.name: each for each in tasks if each.judged}.values():
        path = folder / QUESTIONS / f"{task.name}.json"
        if not path.exists():
            questions = {
                example.id: [example.prompt_words or example.question, *example.answers]
                for example in task.examples()
            }
            document = {"version": VERSION, "task": task.name, "about": task.version}
            write_document(path, KIND, {**document, "questions": questions})


@dataclass(frozen=True)
class JudgedUnit:
    """A finished unit of work with the answers to judge."""

    work: Scoring
    scores: Scores
    questions: Mapping[str, Sequence[str]]

    def list_queries(self) -> Iterator[tuple[Record, Query | None]]:
        """Each record with its query; None if it failed and has no answer."""
        for record in self.scores.records:
            if record.answer is None:
                yield record, None
            else:
                question, *references = self.questions[record.id]
                yield record, (question, " or ".join(references), record.answer)

    def apply(self, verdicts: Mapping[Query, Verdict]) -> Scores:
        """The same records with the judge's scores; a reply that cannot be read is a failure."""
        records, points = [], []
        for record, query in self.list_queries():
            if query is None:
                records.append(record)
                continue
            verdict = verdicts[query]
            if verdict.match is None or verdict.score is None:
                failed = f"{UNREADABLE}: {verdict.reply!r}"
                blank = Record(record.id, record.cluster, failed=failed)
                records.append(replace(blank, question=record.question, answers=record.answers))
                continue
            points.append(verdict.score)
            records.append(replace(record, score=float(verdict.match)))
        metrics = {"judge_score": sum(points) / len(points)} if points else {}
        return Scores(tuple(records), metrics=metrics)


def judge_results(
    source: Path,
    out: Path,
    judge: Judge,
    *,
    tasks: Sequence[str] = (),
    parallel: int = 8,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> ResultsFolder:
    """Judge the answers in the folder `source`, and write a folder of judged results, `out`.

    Answers that several methods share are judged once. Every verdict is saved as soon as it
    arrives, and the same call resumes after an interruption. By default all tasks with questions
    for a judge are judged, `parallel` answers at a time; `advance` is called with the number of
    verdicts so far, and of all.
    """
    run, units = _read_units(source, tasks)
    settings = {**run.get("settings", {}), "judge": judge.description}
    results = ResultsFolder.open(out, {**run, "settings": settings})
    queries = dict.fromkeys(
        query for unit in units for _, query in unit.list_queries() if query is not None
    )
    with results.claim():
        known = _read_verdicts(out / VERDICTS)
        # Unreadable replies are requested again: with more tokens, they may be complete.
        verdicts = {
            query: known[query]
            for query in queries
            if query in known and known[query].match is not None
        }
        pending = [query for query in queries if query not in verdicts]
        total = len(queries)
        with _Requests(judge, out / VERDICTS, verdicts, lambda n: advance(n, total)) as requests:
            requests.send_all(pending, parallel)
        for unit in units:
            results.write(unit.work, unit.apply(verdicts))
    return results


def count_unreadable(judged: Iterable[ResultRow]) -> int:
    """Count answers that failed because the judge's replies could not be read."""
    return sum(
        (record.failed or "").startswith(UNREADABLE)
        for row in judged
        for records in row.records.values()
        for record in records
    )


def _read_units(source: Path, tasks: Sequence[str]) -> tuple[dict[str, Any], list[JudgedUnit]]:
    """The run of a folder of results, and its units that a judge can score."""
    make = f"`tokencover evaluate --suite paper-video --out {source}` makes them"
    if not (source / RUN).is_file():
        raise InputError(f"{source} holds no results, it has no {RUN}: {make}.")
    run = read_results_object(source / RUN)
    if run.pop("format", None) != FORMAT or "judge" in run.get("settings", {}):
        raise InputError(f"{source} is judged already, or of another version of tokencover.")
    paths = sorted(source.glob("scores-*.json"))
    units = [unit for path in paths if (unit := _read_unit(path, tasks, make)) is not None]
    if not units:
        raise InputError(
            f"{source} has no answers for a judge{' among ' + ', '.join(tasks) if tasks else ''}: "
            f"those about videos are, and {make}."
        )
    missing = sorted(set(tasks) - {unit.work.task.name for unit in units})
    if missing:
        raise InputError(f"{source} has no answers of {', '.join(missing)} for a judge: {make}.")
    return run, units


def _read_unit(path: Path, tasks: Sequence[str], make: str) -> JudgedUnit | None:
    """Read a finished unit; None if it is not for a judge."""
    unit = read_unit(path)
    questions_path = path.parent / QUESTIONS / f"{unit.task}.json"
    is_judged = questions_path.exists() and (not tasks or unit.task in tasks)
    if not is_judged or not isinstance(unit.result, Scores) or unit.result.cannot is not None:
        return None
    document = read_document(questions_path, KIND, VERSION, make=make)
    if document.get("about") != unit.version:
        raise ResultsError(
            f"{questions_path} is of other examples than {path}: delete both; {make}."
        )
    task = Task(unit.task, unit.group, partial(iter, ()), _score_nothing, unit.version)
    return JudgedUnit(Scoring(unit.combination, task), unit.result, document["questions"])


class _Requests:
    """Sends queries to a judge, several at once; each verdict is saved as one line.

    `verdicts` has the known ones, and gets the new ones; `advance` is called with their number.
    """

    def __init__(
        self,
        judge: Judge,
        path: Path,
        verdicts: dict[Query, Verdict],
        advance: Callable[[int], None],
    ) -> None:
        self._judge, self._path, self._verdicts, self._advance = judge, path, verdicts, advance
        self._lock, self._leaving = threading.Lock(), threading.Event()
        self._unread = 0

    def __enter__(self) -> _Requests:
        # Ends a line that a killed process left unfinished: the next one is whole.
        self._file = self._path.open("a", encoding="utf-8")
        if self._path.stat().st_size:
            self._file.write("\n")
        return self

    def __exit__(self, *error: object) -> None:
        with name_path(self._path):
            self._file.close()

    def send_all(self, pending: Sequence[Query], parallel: int) -> None:
        """Send these; the first error ends it, and all further attempts."""
        self._advance(len(self._verdicts))
        if not pending:
            return
        self._send(pending[0], 1)  # alone and once: an unreachable judge fails at once
        with ThreadPoolExecutor(max_workers=parallel) as pool:
            futures = [pool.submit(self._send, query, ATTEMPTS) for query in pending[1:]]
            try:
                finished, _ = wait(futures, return_when=FIRST_EXCEPTION)
                for future in finished:
                    future.result()
            finally:
                self._leaving.set()
                pool.shutdown(cancel_futures=True)

    def _send(self, query: Query, attempts: int) -> None:
        if self._leaving.is_set():
            return
        try:
            verdict = self._judge.ask(*query, attempts=attempts, leaving=self._leaving)
            self._save(query, verdict)
        except BaseException:
            self._leaving.set()  # here: other threads start before the main thread gets the error
            raise

    def _save(self, query: Query, verdict: Verdict) -> None:
        line = json.dumps({"asked": query, **asdict(verdict)}, ensure_ascii=False)
        with self._lock:
            with name_path(self._path):
                self._file.write(line + "\n")
                self._file.flush()
            self._verdicts[query] = verdict
            self._advance(len(self._verdicts))
            self._unread += verdict.match is None
            is_hopeless = len(self._verdicts) == self._unread >= HOPELESS
        if is_hopeless:
            raise JudgeError(
                f"{self._unread} replies of the judge {self._judge.model!r} cannot be read, and "
                f"none can, for example {verdict.reply!r}: it must reply with the JSON object that "
                "it is asked for. Give --reply-tokens if replies are cut off, or another --model."
            )


def _read_verdicts(path: Path) -> dict[Query, Verdict]:
    verdicts: dict[Query, Verdict] = {}
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in lines:
        try:
            row = json.loads(line)
            question, reference, answer = row.pop("asked")
            verdicts[question, reference, answer] = Verdict(**row)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # blank, or cut off when a process was killed: it is requested again
    return verdicts


def _score_nothing(answer: str, example: Example) -> float:
    raise NotImplementedError("a judge scores")
