"""Split rules by name, our own and those of other packages, and as JSON."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from tokencover.budget.split import (
    WORDS,
    BalancedSplit,
    CouplingSplit,
    FixedSplit,
    OnlineSplit,
    PaperSplit,
    Split,
    SplitRule,
)
from tokencover.errors import InputError
from tokencover.registry import Registry


def _check_rule(rule: object) -> str:
    """The name of a rule's class; raise if it cannot be registered."""
    if not (isinstance(rule, type) and issubclass(rule, SplitRule)) or inspect.isabstract(rule):
        raise InputError(
            f"{rule!r} is not a split rule: it must be a subclass of tokencover.budget.SplitRule "
            "with a method `decide`."
        )
    if not is_dataclass(rule):
        raise InputError(f"the split rule {rule!r} must be a dataclass: its fields are settings.")
    name = getattr(rule, "name", None)
    if not isinstance(name, str) or not name:
        raise InputError(f"the split rule {rule!r} must have a `name`, a str; got {name!r}.")
    taken = WORDS.get(name.lower())
    if taken is not None and type(taken).name != name:
        raise InputError(f"split={name!r} means {taken!r} already: rename the rule {rule!r}.")
    return name


SPLITS: Registry[type[SplitRule]] = Registry("split rule", "tokencover.splits", _check_rule)
"""The classes of all rules by name, also for JSON."""

for _rule in (PaperSplit, FixedSplit, CouplingSplit, OnlineSplit, BalancedSplit):
    SPLITS.register(_rule)


def rule_of(split: str | Split | SplitRule) -> SplitRule:
    """The rule that a setting means: a word, the name of a rule, a fixed split, or a rule.

    A name builds a new rule each time, because a rule may learn.
    """
    if isinstance(split, SplitRule):
        return split
    if isinstance(split, Split):
        return FixedSplit(split)
    if isinstance(split, str) and split in WORDS:
        return WORDS[split]
    if isinstance(split, str) and split.lower() in {rule.name.lower() for rule in SPLITS}:
        return _build_by_name(split)
    named = [rule.name for rule in SPLITS if rule.name not in WORDS and not _list_required(rule)]
    words = ", ".join(map(repr, [*WORDS, *named]))
    raise InputError(
        f"split must be {words}, a tc.Split, or a rule such as tc.CouplingSplit(profile); got "
        f"{split!r}."
    )


def _build_by_name(name: str) -> SplitRule:
    rule = SPLITS[name]
    if required := _list_required(rule):
        raise InputError(
            f"split={name!r} needs {', '.join(required)}: pass the rule itself, "
            f"{rule.__name__}({required[0]}=...)."
        )
    return rule()


def _list_required(rule: type[SplitRule]) -> list[str]:
    """The settings without a default."""
    return [
        spec.name
        for spec in fields(rule)  # type: ignore[arg-type]
        if spec.init and spec.default is MISSING and spec.default_factory is MISSING
    ]


def rule_document(rule: SplitRule) -> dict[str, Any]:
    """A rule as plain JSON values; what it has learned is not part of it."""
    return {"rule": rule.name, **rule.settings()}


def rule_from_document(document: Mapping[str, Any]) -> SplitRule:
    """The rule in a document of `rule_document`."""
    settings = dict(document)
    name = settings.pop("rule")
    rule = SPLITS[name]
    try:
        return rule.from_settings(settings)
    except TypeError as error:
        raise InputError(
            f"the split rule {name!r} cannot be built from {settings}: {error}."
        ) from error
