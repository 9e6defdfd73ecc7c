"""Methods that an engine can run: they act once, before the decoder, on one picture at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tokencover.budget import CouplingSplit, OnlineSplit, PaperSplit, rule_of
from tokencover.errors import InputError
from tokencover.methods import METHODS, BudgetedMethod, Method, make_method, parse_method

SERVED: Final = (
    "mob",
    "nearest",
    "farthest",
    "divprune",
    "cdpruner",
    "random",
    "grid",
    "downsample",
)
"""The methods of ours that requests may name."""

SPLIT_WORDS: Final = ("paper", "strong", "weak", "balanced", "auto")
"""The splits that requests may name: words alone, nothing that would read a file."""

_ANY_DEPTH: Final = 64
_ANY_TOWER: Final = (24, 22)


def make_served_method(
    spec: str | Mapping[str, Any],
    *,
    budget: int | float,
    positions: str = "original",
    split: str | None = None,
    profile: str | None = None,
) -> BudgetedMethod:
    """Make the method that a server runs.

    Parameters
    ----------
    spec : str or Mapping
        As people write it, ``mob`` or ``mob:split=weak``, or as JSON has it. A method that can act
        after some decoder blocks acts before the decoder, whatever its default is.
    budget : int or float
        Count or share for each picture; one that the spec names goes first.
    positions : "original" or "reindex"
        Those of the server: it decides when it loads the model.
    split : str, optional
        MoB's, where the spec names none: a word, or "coupling".
    profile : str, optional
        The file that `tokencover calibrate --after 0` wrote, for ``split="coupling"``.
    """
    settings = dict(parse_method(spec) if isinstance(spec, str) else spec)
    kind = METHODS[str(settings.get("method"))]
    fields = getattr(kind, "__dataclass_fields__", {})
    settings.setdefault("budget", budget)
    if "after" in fields and kind.watched_layers is Method.watched_layers:
        settings.setdefault("after", 0)
    if "per" in fields:
        settings["per"] = "image"
    if settings.setdefault("positions", positions) != positions:
        raise InputError(
            f"positions={settings['positions']!r} in {spec!r}, but this server has "
            f"{positions!r} for all: they are fixed when a model is loaded."
        )
    if split is not None or profile is not None:
        if "split" in settings:
            raise InputError(
                f"{spec!r} names a split already, and here is another, "
                f"{'profile' if split is None else 'split'}={split or profile!r}: give one of them."
            )
        settings["split"] = _read_profile(split, profile)
    return check_served(make_method(settings))


def _read_profile(split: str | None, profile: str | None) -> str | dict[str, Any] | None:
    """The rule that split and profile mean, with the one number of a profile that counts."""
    if profile is None:
        if split == CouplingSplit.name:
            raise InputError(
                "split='coupling' needs a profile of this model, with the threshold in it: give "
                "--profile FILE, which `tokencover calibrate --after 0` writes."
            )
        return split
    if split not in (None, "coupling"):
        raise InputError(f"a profile is for split='coupling', got split={split!r}.")
    rule = CouplingSplit(profile)
    rule.check(0)
    if rule.tau is None:  # one group: the table without a prior, as the rule itself would say
        return {"rule": PaperSplit.name}
    return {"rule": CouplingSplit.name, "profile": rule.tau}


def check_served(method: Method) -> BudgetedMethod:
    """Refuse a method that needs more than the tokens of one picture and the words."""
    name = method.name
    if not isinstance(method, BudgetedMethod):
        raise InputError(f"{name} has no budget, so it cannot be served: use {_list_served()}.")
    if tuple(method.pruning_layers(_ANY_DEPTH)) != (0,):
        raise InputError(
            f"{name} acts inside the decoder, where an engine's caches have all tokens already; "
            f"give it after=0 if it has that, or use {_list_served()}."
        )
    reads_model = (
        method.watched_layers(_ANY_DEPTH)
        or method.looks_ahead
        or method.watched_vision_blocks(*_ANY_TOWER) is not None
        or method.vision_blocks(*_ANY_TOWER)
    )
    if reads_model:
        raise InputError(
            f"{name} reads attention or works inside the vision tower, which an engine does not "
            f"show: use {_list_served()}."
        )
    if method.budget_mode != "exact":
        raise InputError(
            f"budget_mode={method.budget_mode!r}: before the decoder all modes mean the same, "
            "give 'exact'."
        )
    split = getattr(method, "split", None)
    if split is not None and isinstance(rule_of(split), OnlineSplit):
        raise InputError(
            "split='online' learns from one request to the next, so that equal requests would not "
            "be equal and caches wrong: use split='coupling' with a profile."
        )
    return method


def _list_served() -> str:
    return ", ".join(SERVED)


def check_requested(settings: Mapping[str, Any]) -> None:
    """Refuse what a request may not say about a method.

    A request names one of our methods and plain settings; whatever could read a file, or build
    other objects, stays the server's.
    """
    name = settings.get("method")
    if name not in SERVED:
        raise InputError(f"there is no method {name!r} here: use {_list_served()}.")
    for key, value in settings.items():
        if key == "split" and value not in SPLIT_WORDS:
            raise InputError(f"split={value!r}: a request may say {', '.join(SPLIT_WORDS)}.")
        if not isinstance(value, str | int | float):
            raise InputError(f"{key}={value!r} is no plain value: give a word or a number.")
