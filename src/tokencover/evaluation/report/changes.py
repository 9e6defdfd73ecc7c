"""Questions that pruning lost or won, and the comparison with another run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from tokencover.errors import InputError
from tokencover.evaluation.columns import NOTHING, format_difference, format_percent
from tokencover.evaluation.report.text import describe_results
from tokencover.evaluation.results import Results
from tokencover.evaluation.scoring import ResultRow, compute_difference
from tokencover.statistics import find_mean_score

CORRECT: Final = 0.5
"""The least score of a correct answer."""
Change = Literal["lost", "won"]


@dataclass(frozen=True, slots=True)
class ChangedAnswer:
    """A question that one method answered correctly and another one incorrectly.

    `before` and `after` are the answers without and with the method, `right` the reference answers;
    question and reference answers are empty in results of versions that did not save them.
    """

    task: str
    example: str
    question: str
    right: tuple[str, ...]
    before: str
    after: str
    change: Change


def list_changes(row: ResultRow, against: ResultRow) -> list[ChangedAnswer]:
    """List what a method lost and won against another row, in the order of the questions."""
    changes = []
    for task, records in row.records.items():
        others = {each.id: each for each in against.records.get(task, ())}
        for mine in records:
            other = others.get(mine.id)
            if other is None or mine.score is None or other.score is None:
                continue
            if (mine.score >= CORRECT) == (other.score >= CORRECT):
                continue
            change: Change = "won" if mine.score >= CORRECT else "lost"
            changes.append(
                ChangedAnswer(
                    task,
                    mine.id,
                    mine.question or "",
                    tuple(mine.answers or ()),
                    other.answer or "",
                    mine.answer or "",
                    change,
                )
            )
    return changes


def collect_answers(stored: Results, other: Results | None = None) -> dict[str, Any]:
    """Return all questions with the answers of each method, to compare any two of them.

    `other` is another run, whose answers to the same questions are added.
    """
    rows = [row for row in stored.rows if row.records]
    keys = [(task, each.id) for task in stored.groups for each in _get_longest(rows, task)]
    questions: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = dict.fromkeys(keys, ("", ()))
    for row in rows:
        for task, records in row.records.items():
            for each in records:
                if each.question:
                    questions[task, each.id] = each.question, tuple(each.answers or ())
    theirs = [] if other is None else [row for row in other.rows if row.records]
    return {
        "questions": [
            {"task": task, "id": example, "question": text, "right": list(right)}
            for (task, example), (text, right) in questions.items()
        ],
        "methods": [
            *(_list_answers(row, keys) for row in rows),
            *({**_list_answers(row, keys), "run": "other"} for row in theirs),
        ],
    }


def _get_longest(rows: Sequence[ResultRow], task: str) -> Sequence[Any]:
    return max((row.records.get(task, ()) for row in rows), key=len, default=())


def _list_answers(row: ResultRow, keys: Sequence[tuple[str, str]]) -> dict[str, Any]:
    records = {
        (task, each.id): each for task, each_task in row.records.items() for each in each_task
    }
    mine = [records.get(key) for key in keys]
    return {
        "method": row.combination.label,
        "budget": row.combination.budget,
        "answers": [None if each is None else each.answer for each in mine],
        "scores": [None if each is None else each.score for each in mine],
    }


@dataclass(frozen=True, slots=True)
class OtherRun:
    """A table that compares two runs; `facts` describes the other run."""

    facts: str
    header: tuple[str, ...]
    lines: list[list[str]]


def compare_runs(stored: Results, other: Results) -> OtherRun:
    """Compare every method that both runs have finished, on the tasks of both.

    Raises `InputError` if they have no task, or no method, in common.
    """
    tasks = [task for task in stored.groups if task in other.groups]
    if not tasks:
        raise InputError(
            f"the two runs have no task in common: one has {', '.join(stored.groups)}, the other "
            f"{', '.join(other.groups)}."
        )
    theirs = {(row.combination.label, row.combination.budget): row for row in other.rows}
    pairs = [
        (row, theirs[key])
        for row in stored.rows
        if (key := (row.combination.label, row.combination.budget)) in theirs
        and row.summary
        and theirs[key].summary
    ]
    if not pairs:
        raise InputError("the two runs have no finished method at the same budget in common.")
    header = ("method", "budget", "here %", "there %", "difference [95 %]", "lost", "won")
    lines = [
        _make_line(
            *(replace(row, records={task: row.records[task] for task in tasks}) for row in pair)
        )
        for pair in pairs
    ]
    return OtherRun(describe_results(other), header, lines)


def _make_line(mine: ResultRow, their: ResultRow) -> list[str]:
    means = [find_mean_score(list(row.records.values())) for row in (mine, their)]
    shown = [NOTHING if mean is None else format_percent(mean.mean) for mean in means]
    ids = [
        {task: [each.id for each in records] for task, records in row.records.items()}
        for row in (mine, their)
    ]
    difference = compute_difference(mine, their) if ids[0] == ids[1] else None
    changes = [each.change for each in list_changes(mine, their)]
    return [
        mine.combination.label,
        mine.combination.budget or NOTHING,
        *shown,
        format_difference(difference),
        str(changes.count("lost")),
        str(changes.count("won")),
    ]
