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
from tokencover.evaluation.report import Row
from tokencover.evaluation.results import FORMAT, RUN, Record, Seconds
from tokencover.evaluation.timing import ratio
from tokencover.methods import from_json

UNPRUNED_FIRST = -1


@dataclass(frozen=True)
class Stored:
    """What a folder holds.

    Attributes
    ----------
    run : mapping
        Model, versions and settings of the run.
    groups : mapping
        The group of each task, by name, in the order of groups and names.
    rows : tuple of Row
        The unpruned model first if it is there; then by budget, method by method. A row with
        neither summary nor `Row.cannot` is not finished.
    """

    run: Mapping[str, Any]
    groups: Mapping[str, str]
    rows: tuple[Row, ...]

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self.run["model"]["name"])

    @property
    def unpruned(self) -> Row | None:
        """The row of the model as it is, None if it is not there or not finished."""
        found = [row for row in self.rows if row.combination.method is None and row.summary]
        return found[0] if found else None


@dataclass
class _Found:
    """What the files say of one combination."""

    records: dict[str, tuple[Record, ...]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    seconds: Seconds | None = None


def read_folder(folder: Path) -> Stored:
    """Read all files of a folder.

    Raises
    ------
    InputError
        If the folder is missing, empty or not one of results, or a file is damaged, not of this
        run, or of other examples than the rest.
    """
    run = _run(folder)
    found: defaultdict[Combination, _Found] = defaultdict(_Found)
    tasks: dict[str, tuple[str, str]] = {}
    for path in sorted(folder.glob("*.json")):
        if path.name != RUN:
            _take(path, _object(path), run, found, tasks)
    if not tasks:
        raise InputError(
            f"{folder} has no finished results yet: let `tokencover evaluate --out {folder}` run."
        )
    names = sorted(tasks, key=lambda name: (tasks[name][0], name))
    groups = {name: tasks[name][0] for name in names}
    rows = [_row(combination, each, groups) for combination, each in found.items()]
    return Stored(run, groups, tuple(sorted(rows, key=_order)))


def budget_order(budget: str) -> tuple[str, bool, float]:
    """Where a budget as `Combination.budget` writes it comes among others: large ones first."""
    amount, _, mode = budget.partition(" ")
    return mode, "." in amount, -float(amount) if amount else 0.0


def _run(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise InputError(
            f"there is no folder {folder}: `tokencover evaluate --out {folder}` makes one."
        )
    if not (folder / RUN).is_file():
        raise InputError(
            f"{folder} is not a folder of results, it has no {RUN}: give the one that "
            "`tokencover evaluate --out` wrote."
        )
    run = _object(folder / RUN)
    if run.get("format") != FORMAT:
        raise InputError(
            f"{folder / RUN} is of format {run.get('format')!r}, this tokencover reads {FORMAT}: "
            "evaluate again, or use the tokencover that wrote it."
        )
    model = run.get("model")
    if not isinstance(model, dict) or "name" not in model:
        raise _damaged(folder / RUN, "it does not say which model was asked")
    return {key: value for key, value in run.items() if key != "format"}


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    if not isinstance(found, dict):
        raise _damaged(path, "it is no JSON object")
    return found


def _take(
    path: Path,
    content: dict[str, Any],
    run: Mapping[str, Any],
    found: defaultdict[Combination, _Found],
    tasks: dict[str, tuple[str, str]],
) -> None:
    """Add what one file says."""
    if content.get("run") != run:
        raise _damaged(path, "it is not a result of this run")
    try:
        made = content["method"]
        combination = Combination(None if made is None else from_json(json.dumps(made)))
        each = found[combination]
        if content["kind"] == "timing":
            each.seconds = _seconds(content)
            return
        if content["kind"] != "scores":
            raise ValueError(f"no result is of the kind {content['kind']!r}")
        task, about = str(content["task"]), (str(content["group"]), str(content["version"]))
        if tasks.setdefault(task, about) != about:
            raise ValueError(f"its {task} has other examples than that of the other methods")
        if "cannot" in content:
            each.reasons[task] = str(content["cannot"])
        else:
            each.records[task] = tuple(Record(**row) for row in content["examples"])
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error


def _seconds(content: Mapping[str, Any]) -> Seconds:
    if "cannot" in content:
        return Seconds(cannot=str(content["cannot"]))
    unpruned, pruned = (tuple(map(float, content[key])) for key in ("unpruned", "pruned"))
    return Seconds(unpruned, pruned)


def _row(combination: Combination, found: _Found, groups: Mapping[str, str]) -> Row:
    if found.reasons:
        return Row(combination, {}, None, None, found.reasons[min(found.reasons)])
    records: dict[str, Sequence[Record]] = {
        task: found.records[task] for task in groups if task in found.records
    }
    summary = summarize(records, groups) if len(records) == len(groups) else None
    unpruned = 1.0 if combination.method is None else None
    timed = unpruned if found.seconds is None else ratio(found.seconds)
    return Row(combination, records, summary, timed, None)


def _order(row: Row) -> tuple[Any, ...]:
    method = row.combination.method
    if method is None:
        return (UNPRUNED_FIRST,)
    last = method.name == "mob"
    year = method.card.year or 0
    return 0, budget_order(row.combination.budget), last, year, str(row.combination)


def _damaged(path: Path, why: str) -> InputError:
    return InputError(
        f"{path} is damaged or does not belong here ({why}). Delete it, and the `tokencover "
        "evaluate` that made this folder makes it again."
    )
