"""Results of open answers, scored once more by a judge: a folder of results of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tokencover.errors import InputError
from tokencover.evaluation.language_judge import ATTEMPTS, Judge, JudgeError, Verdict
from tokencover.evaluation.plan import Combination, Scoring
from tokencover.evaluation.result_rows import ResultRow
from tokencover.evaluation.results_folder import (
    FORMAT,
    RUN,
    Record,
    ResultsError,
    ResultsFolder,
    Scores,
    read_scores,
)
from tokencover.evaluation.tasks import Example, Task
from tokencover.files import name_path, read_document, read_object, write_document
from tokencover.methods import from_json

QUESTIONS: Final = "questions"
"""The folder, below that of results, that holds what a judge must know."""
KIND: Final = "tokencover questions"
VERSION: Final = 1
VERDICTS: Final = "verdicts.jsonl"
UNREADABLE: Final = "the judge's reply cannot be read"
HOPELESS: Final = 10
"""So many replies that cannot be read, and none that can, are no accident."""

Asked = tuple[str, str, str]
"""A question, the right answer, and what was answered."""


def keep_questions(folder: Path, tasks: Iterable[Task]) -> None:
    """Write questions and right answers of those tasks that are for a judge beside the results."""
    for task in {each.name: each for each in tasks if each.judged}.values():
        path = folder / QUESTIONS / f"{task.name}.json"
        if not path.exists():
            asked = {
                each.id: [each.prompt_words or each.question, *each.answers]
                for each in task.examples()
            }
            document = {"version": VERSION, "task": task.name, "about": task.version}
            write_document(path, KIND, {**document, "questions": asked})


@dataclass(frozen=True)
class JudgedUnit:
    """A finished unit of work with the answers to judge."""

    work: Scoring
    scores: Scores
    questions: Mapping[str, Sequence[str]]

    def list_asked(self) -> Iterator[tuple[Record, Asked | None]]:
        """Each record with what the judge is asked; None if it failed and has no answer."""
        for record in self.scores.records:
            if record.answer is None:
                yield record, None
            else:
                question, *right = self.questions[record.id]
                yield record, (question, " or ".join(right), record.answer)

    def apply(self, verdicts: Mapping[Asked, Verdict]) -> Scores:
        """The same records with the judge's scores; a reply that cannot be read is a failure."""
        records, points = [], []
        for record, asked in self.list_asked():
            if asked is None:
                records.append(record)
                continue
            verdict = verdicts[asked]
            if verdict.match is None or verdict.score is None:
                records.append(
                    Record(
                        record.id,
                        record.cluster,
                        failed=f"{UNREADABLE}: {verdict.reply!r}",
                        question=record.question,
                        answers=record.answers,
                    )
                )
                continue
            points.append(verdict.score)
            changed = {**asdict(record), "score": float(verdict.match)}
            records.append(Record(**changed))
        metrics = {"judge_score": sum(points) / len(points)} if points else {}
        return Scores(tuple(records), metrics=metrics)


def judge_results(
    source: Path,
    out: Path,
    judge: Judge,
    *,
    tasks: Sequence[str] = (),
    parallel: int = 8,
    advance: Callable[[int, int], None] = lambda done, every: None,
) -> ResultsFolder:
    """Let a judge score what a folder of results holds.

    Answers that several methods share are judged once, and every verdict is on disk as soon as it
    is there: the same call goes on after any interruption.

    Parameters
    ----------
    source, out : Path
        The results, and where the judged ones go: a folder of results like any other, whose run
        names the judge.
    judge : Judge
        Whom to ask.
    tasks : sequence of str
        Which ones; by default all that have questions for a judge.
    parallel : int
        How many answers are judged at a time.
    advance : callable
        Is told how many verdicts are there, and how many there will be.
    """
    run, units = read_units(source, tasks)
    settings = {**run.get("settings", {}), "judge": judge.description}
    results = ResultsFolder.open(out, {**run, "settings": settings})
    wanted = dict.fromkeys(
        asked for unit in units for _, asked in unit.list_asked() if asked is not None
    )
    with results.claim():
        known = _read_verdicts(out / VERDICTS)
        # What could not be read is asked for again: with more room, a reply may be whole.
        verdicts = {
            asked: known[asked]
            for asked in wanted
            if asked in known and known[asked].match is not None
        }
        left = [asked for asked in wanted if asked not in verdicts]

        def tell(done: int) -> None:
            advance(done, len(wanted))

        with _Asking(judge, out / VERDICTS, verdicts, tell) as asking:
            asking.ask_all(left, parallel)
        for unit in units:
            results.write(unit.work, unit.apply(verdicts))
    return results


def count_unreadable(judged: Iterable[ResultRow]) -> int:
    """How many answers failed because the judge's replies could not be read."""
    return sum(
        (each.failed or "").startswith(UNREADABLE)
        for row in judged
        for records in row.records.values()
        for each in records
    )


def read_units(source: Path, tasks: Sequence[str]) -> tuple[dict[str, Any], list[JudgedUnit]]:
    """The run of a folder of results, and its units that a judge can score."""
    again = f"`tokencover evaluate --suite paper-video --out {source}` makes them"
    if not (source / RUN).is_file():
        raise InputError(f"{source} holds no results, it has no {RUN}: {again}.")
    with _name_damage(source / RUN, again):
        run = read_object(source / RUN)
    if run.pop("format", None) != FORMAT or "judge" in run.get("settings", {}):
        raise InputError(f"{source} is judged already, or of another version of tokencover.")
    units = []
    for path in sorted(source.glob("scores-*.json")):
        with _name_damage(path, again):
            unit = _read_unit(path, source / QUESTIONS, tasks, again)
        if unit is not None:
            units.append(unit)
    if not units:
        raise InputError(
            f"{source} has no answers for a judge{' among ' + ', '.join(tasks) if tasks else ''}: "
            f"those about videos are, and {again}."
        )
    missing = sorted(set(tasks) - {unit.work.task.name for unit in units})
    if missing:
        raise InputError(f"{source} has no answers of {', '.join(missing)} for a judge: {again}.")
    return run, units


@contextmanager
def _name_damage(path: Path, again: str) -> Iterator[None]:
    """Name the file if what it holds cannot be used."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultsError(
            f"{path} is damaged ({type(error).__name__}: {error}). Delete it; {again}."
        ) from error


def _read_unit(
    path: Path, questions_folder: Path, tasks: Sequence[str], again: str
) -> JudgedUnit | None:
    """Read a finished unit; None if it is not for a judge."""
    content = read_object(path)
    place = questions_folder / f"{content['task']}.json"
    if "cannot" in content or not place.exists() or (tasks and content["task"] not in tasks):
        return None
    questions = read_document(place, KIND, VERSION, make=again)
    if questions["about"] != content["version"]:
        raise ResultsError(f"{place} is of other examples than {path}: delete both; {again}.")
    method = content["method"]
    work = Scoring(
        Combination(None if method is None else from_json(json.dumps(method))),
        Task(content["task"], content["group"], _list_nothing, _score_nothing, content["version"]),
    )
    return JudgedUnit(work, read_scores(content), questions["questions"])


class _Asking:
    """Asks a judge, several times at once; each verdict is a line on disk as soon as it comes.

    Parameters
    ----------
    judge : Judge
        Whom to ask.
    path : Path
        Where the lines go.
    verdicts : dict
        What is known already; what comes is added.
    advance : callable
        Is told how many there are.
    """

    def __init__(
        self,
        judge: Judge,
        path: Path,
        verdicts: dict[Asked, Verdict],
        advance: Callable[[int], None],
    ) -> None:
        self._judge, self._path, self._verdicts, self._advance = judge, path, verdicts, advance
        self._lock, self._leaving = threading.Lock(), threading.Event()
        self._unread = 0

    def __enter__(self) -> _Asking:
        # A line that a killed process left unfinished ends here, so that the next one is whole.
        self._file = self._path.open("a", encoding="utf-8")
        if self._path.stat().st_size:
            self._file.write("\n")
        return self

    def __exit__(self, *error: object) -> None:
        with name_path(self._path):
            self._file.close()

    def ask_all(self, left: Sequence[Asked], parallel: int) -> None:
        """Ask for these; the first error ends it, and that those who wait try again."""
        self._advance(len(self._verdicts))
        if not left:
            return
        self._ask(left[0], 1)  # alone and once: a judge that is not there is told at once
        with ThreadPoolExecutor(max_workers=parallel) as pool:
            futures = [pool.submit(self._ask, each, ATTEMPTS) for each in left[1:]]
            try:
                finished, _ = wait(futures, return_when=FIRST_EXCEPTION)
                for each in finished:
                    each.result()
            finally:
                self._leaving.set()
                pool.shutdown(cancel_futures=True)

    def _ask(self, asked: Asked, attempts: int) -> None:
        if self._leaving.is_set():
            return
        try:
            self._ask_now(asked, attempts)
        except BaseException:
            self._leaving.set()  # here, since others begin before the main thread hears of it
            raise

    def _ask_now(self, asked: Asked, attempts: int) -> None:
        verdict = self._judge.ask(*asked, attempts=attempts, leaving=self._leaving)
        line = json.dumps({"asked": asked, **asdict(verdict)}, ensure_ascii=False)
        with self._lock:
            with name_path(self._path):
                self._file.write(line + "\n")
                self._file.flush()
            self._verdicts[asked] = verdict
            self._advance(len(self._verdicts))
            self._unread += verdict.match is None
            is_hopeless = len(self._verdicts) == self._unread >= HOPELESS
        if is_hopeless:
            raise JudgeError(
                f"{self._unread} replies of the judge {self._judge.model!r} cannot be read, and "
                f"none can, for example {verdict.reply!r}: it must reply with the JSON object that "
                "it is asked for. Give --reply-tokens if replies are cut off, or another --model."
            )


def _read_verdicts(path: Path) -> dict[Asked, Verdict]:
    found: dict[Asked, Verdict] = {}
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in lines:
        try:
            row = json.loads(line)
            question, right, answer = row.pop("asked")
            found[question, right, answer] = Verdict(**row)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # blank, or left unfinished by a process that was killed: it is asked again
    return found


def _list_nothing() -> Iterator[Example]:
    return iter(())


def _score_nothing(answer: str, example: Example) -> float:
    raise NotImplementedError("a judge scores")
