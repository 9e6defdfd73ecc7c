"""What an evaluation has to do: every method at every budget on every task."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokencover.budget import Budget, BudgetMode
from tokencover.errors import InputError
from tokencover.evaluation.task import Task
from tokencover.methods import METHODS, Method, from_json, to_json

UNPRUNED = "unpruned"
BUDGET_SETTINGS = ("budget", "budget_mode")

Spec = Mapping[str, Any]
"""A method as JSON, with or without its budget: ``{"method": "fastv", "after": 3}``."""


@dataclass(frozen=True)
class Combination:
    """A method with its settings and budget; None is the model as it is."""

    method: Method | None

    @property
    def settings(self) -> dict[str, Any] | None:
        """Everything the method was made with, as JSON has it."""
        if self.method is None:
            return None
        settings: dict[str, Any] = json.loads(to_json(self.method))
        return settings

    @property
    def label(self) -> str:
        """The method's name, with those settings that are not the defaults."""
        return UNPRUNED if self.method is None else _label(self.method)

    @property
    def budget(self) -> str:
        """The budget as it was given, and what it counts if that is not the tokens left."""
        method: Any = self.method
        while hasattr(method, "inner"):
            method = method.inner
        if not hasattr(method, "budget"):
            return ""
        mode = "" if method.budget_mode == "exact" else f" {method.budget_mode}"
        return f"{method.budget}{mode}"

    def __str__(self) -> str:
        return f"{self.label} {self.budget}".strip()


@dataclass(frozen=True)
class Scoring:
    """One unit of work: a task's questions, answered under one combination."""

    combination: Combination
    task: Task

    @property
    def identity(self) -> dict[str, Any]:
        """What its file must say."""
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
        return _file("scores", self.combination, self.task.name)

    def __str__(self) -> str:
        return f"{self.combination}, {self.task.name}"


@dataclass(frozen=True)
class Timing:
    """One unit of work: the time to the first token, with and without pruning."""

    combination: Combination
    task: Task

    @property
    def identity(self) -> dict[str, Any]:
        """What its file must say."""
        return {"kind": "timing", "method": self.combination.settings, "task": self.task.name}

    @property
    def file(self) -> str:
        """Name of its file."""
        return _file("timing", self.combination, self.task.name)

    def __str__(self) -> str:
        return f"{self.combination}, timing"


Work = Scoring | Timing


@dataclass(frozen=True)
class Plan:
    """All units of work, those of the unpruned model first."""

    combinations: tuple[Combination, ...]
    tasks: tuple[Task, ...]
    timed: bool = True

    @property
    def work(self) -> list[Work]:
        """Combination by combination: its tasks, then its timing, on the first task."""
        units: list[Work] = []
        for each in self.combinations:
            units += [Scoring(each, task) for task in self.tasks]
            if self.timed and each.method is not None:
                units.append(Timing(each, self.tasks[0]))
        return units

    def share(self, process: int, processes: int) -> list[Work]:
        """What one of several processes does; together they do everything once."""
        if not 0 <= process < processes:
            raise InputError(
                f"there is no process {process} of {processes}: they count from 0, --shard 0/2 and "
                "--shard 1/2 say."
            )
        return self.work[process::processes]


def combinations(
    specs: Sequence[Spec], budgets: Sequence[Budget], mode: BudgetMode = "exact"
) -> tuple[Combination, ...]:
    """The unpruned model, then every method at every budget.

    Parameters
    ----------
    specs : sequence of mapping
        Methods; one with a budget of its own is run at that one alone, behind the others.
    budgets : sequence of int or float
        Counts or shares.
    mode : "exact", "layer_mean" or "flops"
        What budgets count, where a method does not say it itself.
    """
    open_ones = [spec for spec in specs if not _has_budget(spec)]
    if open_ones and not budgets:
        raise InputError(f"{_name(open_ones[0])} has no budget: give --budgets 192,128,64 say.")
    pairs = [(spec, budget) for budget in budgets for spec in open_ones]
    methods = [_made(_complete(spec, budget, mode)) for spec, budget in pairs]
    methods += [_made(spec) for spec in specs if _has_budget(spec)]
    found = (Combination(None), *map(Combination, methods))
    for first, second in itertools.combinations(found, 2):
        if first == second:
            raise InputError(f"{second} was asked for twice; leave one out.")
    return found


def _made(spec: Spec) -> Method:
    return from_json(json.dumps(spec))


def _name(spec: Spec) -> str:
    if not isinstance(spec, Mapping) or not isinstance(spec.get("method"), str):
        raise InputError(f'a method is an object with a "method" name, got {spec!r}.')
    name: str = spec["method"]
    return name


def _fields(spec: Spec) -> dict[str, dataclasses.Field[Any]]:
    kind: Any = METHODS[_name(spec)]
    return {each.name: each for each in dataclasses.fields(kind) if each.init}


def _inner(spec: Spec) -> Spec | None:
    """The method that this one goes on top of, None if it stands alone."""
    if "inner" not in _fields(spec):
        return None
    if "inner" not in spec:
        raise InputError(
            f"{_name(spec)} goes on top of another method: give it as --method-json "
            f'\'{{"method": "{_name(spec)}", "inner": {{"method": "mob"}}}}\'.'
        )
    inner: Spec = spec["inner"]
    return inner


def _has_budget(spec: Spec) -> bool:
    inner = _inner(spec)
    return "budget" in spec if inner is None else _has_budget(inner)


def _complete(spec: Spec, budget: Budget, mode: BudgetMode) -> Spec:
    inner = _inner(spec)
    if inner is not None:
        return {**spec, "inner": _complete(inner, budget, mode)}
    return {"budget": budget, "budget_mode": mode, **spec}


def _label(method: Method) -> str:
    shown = []
    for each in dataclasses.fields(method):  # type: ignore[arg-type]
        value = getattr(method, each.name)
        if not each.init or each.name in BUDGET_SETTINGS or value == _default(each):
            continue
        text = _label(value) if isinstance(value, Method) else str(value)
        shown.append(f"{each.name}={text}")
    return f"{method.name}({', '.join(shown)})" if shown else method.name


def _default(field: dataclasses.Field[Any]) -> Any:
    factory = field.default_factory
    return field.default if factory is dataclasses.MISSING else factory()


def _file(kind: str, combination: Combination, task: str) -> str:
    """A readable name; its last part tells apart what reads alike."""
    exact = json.dumps([combination.settings, task], sort_keys=True)
    digest = hashlib.sha256(exact.encode()).hexdigest()[:8]
    words = [kind, combination.label, combination.budget, task]
    readable = [re.sub(r"[^A-Za-z0-9._+]+", "_", word)[:60].strip("_") for word in words if word]
    return "-".join([*readable, digest]) + ".json"
