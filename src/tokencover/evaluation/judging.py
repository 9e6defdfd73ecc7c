"""Results of open answers, scored once more by a judge: a folder of results of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tokencover.errors import InputError
from tokencover.evaluation.language_judge import ATTEMPTS, Judge, Verdict
from tokencover.evaluation.plan import Combination, Scoring
from tokencover.evaluation.results_folder import (
    FORMAT,
    RUN,
    Record,
    ResultsFolder,
    Scores,
    read_scores,
)
from tokencover.evaluation.tasks import Example, Task
from tokencover.files import read_document, read_object, write_document
from tokencover.methods import from_json

QUESTIONS: Final = "questions"
"""The folder, below that of results, that holds what a judge must know."""
KIND: Final = "tokencover questions"
VERSION: Final = 1
VERDICTS: Final = "verdicts.jsonl"

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
                failed = f"the judge's reply cannot be read: {verdict.reply!r}"
                records.append(Record(record.id, record.cluster, failed=failed))
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
    advance: Callable[[int, int], None] = lambda done, all_of_them: None,
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
    verdicts = _read_verdicts(out / VERDICTS)
    left = [asked for asked in wanted if asked not in verdicts]
    done = len(wanted) - len(left)
    advance(done, len(wanted))
    with _Recorder(out / VERDICTS) as recorder:

        def ask(asked: Asked, attempts: int = ATTEMPTS) -> None:
            verdict = judge.ask(*asked, attempts=attempts)
            recorder.add(asked, verdict)
            verdicts[asked] = verdict
            advance(done + recorder.count, len(wanted))

        if left:
            ask(left[0], 1)  # alone and once: a judge that is not there is told at once
            _do_all(ask, left[1:], parallel)
    for unit in units:
        results.write(unit.work, unit.apply(verdicts))
    return results


def read_units(source: Path, tasks: Sequence[str]) -> tuple[dict[str, Any], list[JudgedUnit]]:
    """The run of a folder of results, and its units that a judge can score."""
    again = f"`tokencover evaluate --suite paper-video --out {source}` makes them"
    try:
        run = read_object(source / RUN)
    except (OSError, ValueError) as error:
        raise InputError(f"{source} holds no results ({error}): {again}.") from error
    if run.pop("format", None) != FORMAT or "judge" in run.get("settings", {}):
        raise InputError(f"{source} is judged already, or of another version of tokencover.")
    units = []
    for path in sorted(source.glob("scores-*.json")):
        content = read_object(path)
        place = source / QUESTIONS / f"{content['task']}.json"
        if "cannot" in content or not place.exists() or (tasks and content["task"] not in tasks):
            continue
        questions = read_document(place, KIND, VERSION, make=again)
        if questions["about"] != content["version"]:
            raise InputError(f"{place} is of other examples than {path}: delete both; {again}.")
        method = content["method"]
        work = Scoring(
            Combination(None if method is None else from_json(json.dumps(method))),
            Task(content["task"], content["group"], _list_nothing, _score_nothing,
                 content["version"]),
        )  # fmt: skip
        units.append(JudgedUnit(work, read_scores(content), questions["questions"]))
    if not units:
        raise InputError(
            f"{source} has no answers for a judge{' among ' + ', '.join(tasks) if tasks else ''}: "
            f"those about videos are, and {again}."
        )
    return run, units


def _do_all(ask: Callable[[Asked], None], left: Sequence[Asked], parallel: int) -> None:
    """Ask all, several at a time; the first error ends it."""
    with ThreadPoolExecutor(max_workers=parallel) as pool:
        futures = [pool.submit(ask, each) for each in left]
        try:
            finished, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for each in finished:
                each.result()
        finally:
            pool.shutdown(cancel_futures=True)


class _Recorder:
    """Writes a line for each verdict as it comes, from several threads."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self.count = 0

    def __enter__(self) -> _Recorder:
        # A line that a killed process left unfinished ends here, so that the next one is whole.
        self._file = self._path.open("a", encoding="utf-8")
        if self._path.stat().st_size:
            self._file.write("\n")
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, asked: Asked, verdict: Verdict) -> None:
        """Write one."""
        line = json.dumps({"asked": asked, **asdict(verdict)}, ensure_ascii=False)
        with self._lock:
            self._file.write(line + "\n")
            self._file.flush()
            self.count += 1


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
