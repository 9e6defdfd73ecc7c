"""Split rules by name: our own, those of other packages, and the words that stand for one."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from tokencover.budget.split import Split, SplitRule
from tokencover.budget.split_rules import (
    BalancedSplit,
    CouplingSplit,
    FixedSplit,
    OnlineSplit,
    PaperSplit,
)
from tokencover.errors import InputError
from tokencover.registry import Registry

AUTO: SplitRule = PaperSplit()
"""What "auto" means: the rule that is recommended when nothing is known about model and data."""

WORDS: dict[str, SplitRule] = {
    "paper": PaperSplit(),
    "strong": PaperSplit("strong"),
    "weak": PaperSplit("weak"),
    "balanced": BalancedSplit(),
    "auto": AUTO,
}
"""Words that stand for a rule and its settings; any other is the name of a rule in `SPLITS`."""


def _check_rule(kind: object) -> str:
    """The name of a rule's class, if it can be used by that name."""
    if not (isinstance(kind, type) and issubclass(kind, SplitRule)) or inspect.isabstract(kind):
        raise InputError(
            f"{kind!r} is not a split rule: it must be a subclass of tokencover.budget.SplitRule "
            "with a method `decide`."
        )
    if not is_dataclass(kind):
        raise InputError(f"the split rule {kind!r} must be a dataclass: its fields are settings.")
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not name:
        raise InputError(f"the split rule {kind!r} must have a `name`, a str; got {name!r}.")
    taken = WORDS.get(name.lower())
    if taken is not None and type(taken).name != name:
        raise InputError(f"split={name!r} means {taken!r} already: rename the rule {kind!r}.")
    return name


SPLITS: Registry[type[SplitRule]] = Registry("split rule", "tokencover.splits", _check_rule)
"""The classes of all rules by name, also for JSON."""

for _rule in (PaperSplit, FixedSplit, CouplingSplit, OnlineSplit, BalancedSplit):
    SPLITS.register(_rule)


def rule_of(split: str | Split | SplitRule) -> SplitRule:
    """The rule that a setting means: a word, the name of a rule, a fixed split, or a rule.

    A name makes a new rule each time, so that what a rule learns belongs to one user.
    """
    if isinstance(split, SplitRule):
        return split
    if isinstance(split, Split):
        return FixedSplit(split)
    if isinstance(split, str) and split in WORDS:
        return WORDS[split]
    if isinstance(split, str) and split.lower() in {rule.name.lower() for rule in SPLITS}:
        return _make_by_name(split)
    named = [rule.name for rule in SPLITS if rule.name not in WORDS and not _find_needed(rule)]
    words = ", ".join(map(repr, [*WORDS, *named]))
    raise InputError(
        f"split must be {words}, a tc.Split, or a rule such as tc.CouplingSplit(profile); got "
        f"{split!r}."
    )


def _make_by_name(name: str) -> SplitRule:
    kind = SPLITS[name]
    if needed := _find_needed(kind):
        raise InputError(
            f"split={name!r} says nothing about {', '.join(needed)}: give the rule itself, "
            f"{kind.__name__}({needed[0]}=...)."
        )
    return kind()


def _find_needed(kind: type[SplitRule]) -> list[str]:
    """The settings without which a rule cannot be made."""
    return [
        each.name
        for each in fields(kind)  # type: ignore[arg-type]
        if each.init and each.default is MISSING and each.default_factory is MISSING
    ]


def rule_document(rule: SplitRule) -> dict[str, Any]:
    """A rule as plain JSON values; what it has learned is not part of it."""
    return {"rule": rule.name, **rule.settings()}


def rule_from_document(document: Mapping[str, Any]) -> SplitRule:
    """The rule that `rule_document` wrote down."""
    settings = dict(document)
    name = settings.pop("rule")
    kind = SPLITS[name]
    try:
        return kind.from_settings(settings)
    except TypeError as error:
        raise InputError(
            f"the split rule {name!r} cannot be made from {settings}: {error}."
        ) from error
