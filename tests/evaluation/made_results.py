"""Folders of results made by hand, in the format of `tokencover evaluate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tokencover.evaluation import Example, Task
from tokencover.evaluation.plan import Combination, Scoring, Timing
from tokencover.evaluation.records import Record, Scores, Seconds
from tokencover.evaluation.report.paper_comparison import PAPER_ROWS, PaperRow
from tokencover.evaluation.store import ResultsFolder
from tokencover.methods import Method

TOTAL = 576
GROUPS = {"GQA": "weak", "POPE": "weak", "VizWiz": "strong"}

Answers = Mapping[str, Sequence[float | None]]
"""By task the score of each example, None if it failed."""


def run_of(model: str) -> dict[str, object]:
    return {
        "model": {"name": model, "dtype": "float32", "weights": "abc"},
        "versions": {"torch": "2.0"},
        "settings": {"limit": None, "batch_size": 16},
    }


def task(name: str, group: str | None = None, version: str = "1") -> Task:
    def examples() -> Iterator[Example]:
        raise AssertionError("a report does not ask")

    return Task(name, group or GROUPS[name], examples, lambda answer, example: 0.0, version)


def write(
    results: ResultsFolder,
    method: Method | None,
    answers: Answers,
    *,
    tokens: int = TOTAL,
    flops: float = 1.0,
    seconds: tuple[float, float] | None = None,
) -> None:
    """Write a combination's files."""
    combination = Combination(method)
    for name, scores in answers.items():
        records = [
            Record(str(place), f"scene {place}", failed="ValueError: no")
            if score is None
            else Record(str(place), f"scene {place}", "yes", score, tokens, tokens + 10.0, flops)
            for place, score in enumerate(scores)
        ]
        results.write(Scoring(combination, task(name)), Scores(tuple(records)))
    if seconds is not None:
        times = Seconds((seconds[0],) * 3, (seconds[1],) * 3)
        results.write(Timing(combination, task(next(iter(answers)))), times)


def get_paper_row(model: str, reduction: float, method: str) -> PaperRow:
    """A row of the paper's tables."""
    (row,) = [
        each
        for each in PAPER_ROWS
        if (each.model, each.reduction, each.method) == (model, reduction, method)
    ]
    return row


def open_folder(folder: Path, model: str = "pebble") -> ResultsFolder:
    return ResultsFolder.open(folder, run_of(model))
