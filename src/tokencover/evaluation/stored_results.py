"""Reads a folder of results without the tasks and models that made it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokencover.errors import InputError
from tokencover.evaluation.metrics import summarize
from tokencover.evaluation.plan import Combination
from tokencover.evaluation.result_rows import ResultRow
from tokencover.evaluation.results import Results
from tokencover.evaluation.results_folder import (
    FORMAT,
    RUN,
    Record,
    ResultsError,
    Scores,
    Seconds,
    read_scores,
)
from tokencover.files import read_object
from tokencover.methods import from_json

UNPRUNED_FIRST = -1


@dataclass
class _Found:
    """What the files say of one combination."""

    scores: dict[str, Scores] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    seconds: Seconds | None = None


def read_folder(folder: str | Path) -> Results:
    """Read all files of a folder.

    Raises
    ------
    InputError
        If the folder is missing, empty or not one of results.
    ResultsError
        If a file is damaged, not of this run, or of other examples than the rest.
    """
    folder = Path(folder)
    run = _read_run(folder)
    found: defaultdict[Combination, _Found] = defaultdict(_Found)
    tasks: dict[str, tuple[str, str]] = {}
    sources: dict[str, str] = {}
    for path in sorted(folder.glob("*.json")):
        if path.name != RUN:
            content = _read_object(path)
            _add_file(path, content, run, found, tasks)
            if content.get("source"):
                sources[str(content["task"])] = str(content["source"])
    if not tasks:
        raise InputError(
            f"{folder} has no finished results yet: let `tokencover evaluate --out {folder}` run."
        )
    names = sorted(tasks, key=lambda name: (tasks[name][0], name))
    groups = {name: tasks[name][0] for name in names}
    rows = [_make_row(combination, each, groups) for combination, each in found.items()]
    about = {name: tasks[name][1] for name in names}
    ordered = tuple(sorted(rows, key=_find_place))
    return Results(run, groups, ordered, sources=sources, about=about)


def find_budget_place(budget: str) -> tuple[str, bool, float]:
    """Where a budget as `Combination.budget` writes it comes among others: large ones first."""
    amount, _, mode = budget.partition(" ")
    return mode, "." in amount, -float(amount) if amount else 0.0


def _read_run(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise InputError(
            f"there is no folder {folder}: `tokencover evaluate --out {folder}` makes one."
        )
    if not (folder / RUN).is_file():
        raise InputError(
            f"{folder} is not a folder of results, it has no {RUN}: give the one that "
            "`tokencover evaluate --out` wrote."
        )
    run = _read_object(folder / RUN)
    if run.get("format") != FORMAT:
        raise ResultsError(
            f"{folder / RUN} is of format {run.get('format')!r}, this tokencover reads {FORMAT}: "
            "evaluate again, or use the tokencover that wrote it."
        )
    model = run.get("model")
    if not isinstance(model, dict) or "name" not in model:
        raise _make_damage_error(folder / RUN, "it does not say which model was asked")
    return {key: value for key, value in run.items() if key != "format"}


def _read_object(path: Path) -> dict[str, Any]:
    try:
        return read_object(path)
    except ValueError as error:
        raise _make_damage_error(path, str(error)) from error


def _add_file(
    path: Path,
    content: dict[str, Any],
    run: Mapping[str, Any],
    found: defaultdict[Combination, _Found],
    tasks: dict[str, tuple[str, str]],
) -> None:
    """Add what one file says."""
    if content.get("run") != run:
        raise _make_damage_error(path, "it is not a result of this run")
    try:
        made = content["method"]
        combination = Combination(None if made is None else from_json(json.dumps(made)))
        each = found[combination]
        if content["kind"] == "timing":
            each.seconds = _read_seconds(content)
            return
        if content["kind"] != "scores":
            raise ValueError(f"no result is of the kind {content['kind']!r}")
        task, about = str(content["task"]), (str(content["group"]), str(content["version"]))
        if tasks.setdefault(task, about) != about:
            raise ValueError(f"its {task} has other examples than that of the other methods")
        if "cannot" in content:
            each.reasons[task] = str(content["cannot"])
        else:
            each.scores[task] = read_scores(content)
    except (KeyError, TypeError, ValueError) as error:
        raise _make_damage_error(path, f"{type(error).__name__}: {error}") from error


def _read_seconds(content: Mapping[str, Any]) -> Seconds:
    if "cannot" in content:
        return Seconds(cannot=str(content["cannot"]))
    unpruned, pruned = (tuple(map(float, content[key])) for key in ("unpruned", "pruned"))
    return Seconds(unpruned, pruned)


def _make_row(combination: Combination, found: _Found, groups: Mapping[str, str]) -> ResultRow:
    if found.reasons:
        return ResultRow(combination, {}, None, None, found.reasons[min(found.reasons)])
    records: dict[str, Sequence[Record]] = {
        task: found.scores[task].records for task in groups if task in found.scores
    }
    overall = {
        task: each.overall for task, each in found.scores.items() if each.overall is not None
    }
    summary = summarize(records, groups, overall) if len(records) == len(groups) else None
    unpruned = 1.0 if combination.method is None else None
    timed = unpruned if found.seconds is None else found.seconds.ratio
    metrics = {task: each.metrics for task, each in found.scores.items() if each.metrics}
    return ResultRow(combination, records, summary, timed, None, metrics)


def _find_place(row: ResultRow) -> tuple[Any, ...]:
    method = row.combination.method
    if method is None:
        return (UNPRUNED_FIRST,)
    last = method.name == "mob"
    year = method.card.year or 0
    return 0, find_budget_place(row.combination.budget), last, year, str(row.combination)


def _make_damage_error(path: Path, why: str) -> ResultsError:
    return ResultsError(
        f"{path} is damaged or does not belong here ({why}). Delete it, and the `tokencover "
        "evaluate` that made this folder makes it again."
    )
