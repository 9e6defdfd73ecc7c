"""The units of work of an evaluation: every method at every budget on every task."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tokencover.budget import Budget, BudgetMode
from tokencover.errors import InputError
from tokencover.evaluation.tasks import Task
from tokencover.methods import METHODS, Method, Spec, make_method, name_method, to_json

UNPRUNED: Final = "unpruned"
BUDGET_SETTINGS: Final = ("budget", "budget_mode")
"""Settings in `Combination.budget`, which a label leaves out."""
LONGEST_WORD: Final = 60
"""Letters that a label, a budget or a task adds to the name of a file."""


@dataclass(frozen=True)
class Combination:
    """A method with its settings and budget; None is the unpruned model."""

    method: Method | None

    @property
    def settings(self) -> dict[str, Any] | None:
        """All settings of the method, as JSON has them."""
        if self.method is None:
            return None
        settings: dict[str, Any] = json.loads(to_json(self.method))
        # Files of versions that did not have a setting keep their names.
        for name in self.method.added_later:
            if settings.get(name) == getattr(type(self.method), name):
                del settings[name]
        return settings

    @property
    def label(self) -> str:
        """The method with the settings that are not defaults: ``fastv:after=3``."""
        if self.method is None:
            return UNPRUNED
        return name_method(self.method, hidden=BUDGET_SETTINGS)

    @property
    def innermost(self) -> Any:
        """The method without wrappers around it."""
        method: Any = self.method
        while hasattr(method, "inner"):
            method = method.inner
        return method

    @property
    def budget(self) -> str:
        """The budget as it was given, and its mode unless that is "exact"."""
        method = self.innermost
        if not hasattr(method, "budget"):
            return ""
        mode = "" if method.budget_mode == "exact" else f" {method.budget_mode}"
        if method.budget_mode == "published":
            mode += f" ({method.published_mode})"
        return f"{method.budget}{mode}"

    def goes_by(self, label: str) -> bool:
        """Whether this is its label, also as earlier versions wrote it: ``fastv(after=3)``."""
        return _make_readable(label).strip("_") == _make_readable(self.label).strip("_")

    def __str__(self) -> str:
        return f"{self.label} {self.budget}".strip()


@dataclass(frozen=True)
class Scoring:
    """One unit of work: a task's questions, answered under one combination."""

    combination: Combination
    task: Task

    @property
    def identity(self) -> dict[str, Any]:
        """The entries that identify its file."""
        return {
            "kind": "scores",
            "method": self.combination.settings,
            "task": self.task.name,
            "group": self.task.group,
            "version": self.task.version,
        }

    @property
    def file(self) -> str:
        """Name of its file."""
        return _name_file("scores", self.combination, self.task.name)

    def __str__(self) -> str:
        return f"{self.combination}, {self.task.name}"


@dataclass(frozen=True)
class Timing:
    """One unit of work: the time to the first token, with and without pruning."""

    combination: Combination
    task: Task

    @property
    def identity(self) -> dict[str, Any]:
        """The entries that identify its file."""
        return {"kind": "timing", "method": self.combination.settings, "task": self.task.name}

    @property
    def file(self) -> str:
        """Name of its file."""
        return _name_file("timing", self.combination, self.task.name)

    def __str__(self) -> str:
        return f"{self.combination}, timing"


Work = Scoring | Timing


@dataclass(frozen=True)
class EvaluationPlan:
    """All units of work, those of the unpruned model first."""

    combinations: tuple[Combination, ...]
    tasks: tuple[Task, ...]
    timed: bool = True

    @property
    def work(self) -> list[Work]:
        """Combination by combination: its tasks, then its timing, on the first task."""
        units: list[Work] = []
        for combination in self.combinations:
            units += [Scoring(combination, task) for task in self.tasks]
            if self.timed and combination.method is not None:
                units.append(Timing(combination, self.tasks[0]))
        return units

    def share(self, process: int, processes: int) -> list[Work]:
        """The units of one of several processes; together they do each unit once."""
        check_part(process, processes)
        return self.work[process::processes]


def check_part(process: int, processes: int) -> None:
    """Raise `InputError` if the index of a process is out of range."""
    if not 0 <= process < processes:
        raise InputError(
            f"there is no process {process} of {processes}: they count from 0, for example "
            "--shard 0/2 and --shard 1/2."
        )


def make_combinations(
    specs: Sequence[Spec | Method], budgets: Sequence[Budget], mode: BudgetMode = "exact"
) -> tuple[Combination, ...]:
    """Combine the unpruned model, then every method at every budget.

    A method that sets its budget is run at that one only, after the others. `mode` applies to
    methods that do not set it.
    """
    open_specs = [spec for spec in specs if not isinstance(spec, Method) and not _has_budget(spec)]
    if open_specs and not budgets:
        raise InputError(
            f"{_get_name(open_specs[0])} has no budget: give some, for example "
            "--budgets 192,128,64."
        )
    if budgets and not specs:
        raise InputError(
            f"there are budgets, {', '.join(map(str, budgets))}, but no methods: give some, for "
            "example --methods mob,fastv."
        )
    pairs = [(spec, budget) for budget in budgets for spec in open_specs]
    methods = [make_method(_add_budget(spec, budget, mode)) for spec, budget in pairs]
    for spec in specs:
        if isinstance(spec, Method):
            methods.append(spec)
        elif _has_budget(spec):
            methods.append(make_method(spec))
    combinations = (Combination(None), *map(Combination, methods))
    for first, second in itertools.combinations(combinations, 2):
        if first == second:
            raise InputError(f"{second} is given twice; leave one out.")
    return combinations


def _get_name(spec: Spec) -> str:
    if not isinstance(spec, Mapping) or not isinstance(spec.get("method"), str):
        raise InputError(f'a method is an object with a "method" name, got {spec!r}.')
    name: str = spec["method"]
    return name


def _get_inner(spec: Spec) -> Spec | None:
    """The method that a wrapper wraps, None if the method is not a wrapper."""
    name = _get_name(spec)
    kind: Any = METHODS[name]
    if not any(field.name == "inner" and field.init for field in dataclasses.fields(kind)):
        return None
    if "inner" not in spec:
        raise InputError(
            f"{name} wraps another method. Set its inner method: {name}:inner=mob, or "
            f'--method-json \'{{"method": "{name}", "inner": {{"method": "mob"}}}}\'.'
        )
    inner: Spec = spec["inner"]
    return inner


def _has_budget(spec: Spec) -> bool:
    inner = _get_inner(spec)
    return "budget" in spec if inner is None else _has_budget(inner)


def _add_budget(spec: Spec, budget: Budget, mode: BudgetMode) -> Spec:
    inner = _get_inner(spec)
    if inner is not None:
        return {**spec, "inner": _add_budget(inner, budget, mode)}
    return {"budget": budget, "budget_mode": mode, **spec}


def _name_file(kind: str, combination: Combination, task: str) -> str:
    """A readable name; the digest at its end makes it unique."""
    exact = json.dumps([combination.settings, task], sort_keys=True)
    digest = hashlib.sha256(exact.encode()).hexdigest()[:8]
    words = [kind, combination.label, combination.budget, task]
    readable = [_make_readable(word)[:LONGEST_WORD].strip("_") for word in words if word]
    return "-".join([*readable, digest]) + ".json"


def _make_readable(word: str) -> str:
    """Without characters that file names should not have."""
    return re.sub(r"[^A-Za-z0-9._+]+", "_", word)
