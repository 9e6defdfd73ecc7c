"""Which questions pruning lost or won, for every pair of methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from tokencover.evaluation.result_rows import ResultRow
from tokencover.evaluation.results import Results

RIGHT: Final = 0.5
"""A score from here on counts as right."""
Change = Literal["lost", "won"]


@dataclass(frozen=True, slots=True)
class ChangedAnswer:
    """A question that one method answered rightly and another one wrongly.

    Attributes
    ----------
    task, example : str
        Which question; the example's id.
    question : str
        What was asked; empty in results of versions that did not save it.
    right : tuple of str
        The right answers.
    before, after : str
        What was answered without and with the method.
    change : "lost" or "won"
        What the method did to it.
    """

    task: str
    example: str
    question: str
    right: tuple[str, ...]
    before: str
    after: str
    change: Change


def find_changes(row: ResultRow, against: ResultRow) -> list[ChangedAnswer]:
    """What a method lost and won against another row, in the order of the questions."""
    found = []
    for task, records in row.records.items():
        others = {each.id: each for each in against.records.get(task, ())}
        for mine in records:
            other = others.get(mine.id)
            if other is None or mine.score is None or other.score is None:
                continue
            if (mine.score >= RIGHT) == (other.score >= RIGHT):
                continue
            change: Change = "won" if mine.score >= RIGHT else "lost"
            found.append(
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
    return found


def collect_answers(stored: Results, other: Results | None = None) -> dict[str, Any]:
    """All questions, and what each method answered, for a page that compares any two of them.

    Parameters
    ----------
    stored : Results
        Whose questions.
    other : Results, optional
        Another run, whose answers to the same questions are added.
    """
    rows = [row for row in stored.rows if row.records]
    keys = [(task, each.id) for task in stored.groups for each in _find_longest(rows, task)]
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


def _find_longest(rows: Sequence[ResultRow], task: str) -> Sequence[Any]:
    return max((row.records.get(task, ()) for row in rows), key=len, default=())


def _list_answers(row: ResultRow, keys: Sequence[tuple[str, str]]) -> dict[str, Any]:
    found = {(task, each.id): each for task, records in row.records.items() for each in records}
    mine = [found.get(key) for key in keys]
    return {
        "method": row.combination.label,
        "budget": row.combination.budget,
        "answers": [None if each is None else each.answer for each in mine],
        "scores": [None if each is None else each.score for each in mine],
    }
