"""All methods and model families, listed without importing them.

``catalog.json`` is generated from the classes (``make catalog``), so lists need no torch. If other
packages announce methods or families, `register` was called, or the file cannot be read, the
classes are imported and described instead.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from tokencover.errors import InputError

FILE = Path(__file__).with_name("catalog.json")
GROUPS = ("tokencover.methods", "tokencover.families")
"""The entry points that change what is listed."""
CARD_FIELDS = (
    "title", "year", "objective", "pruning_point", "signal", "paper", "needs", "departs",
)  # fmt: skip
"""The fields of `tokencover.methods.Card` that are listed."""

Registered = TypeVar("Registered")


@dataclass(frozen=True, slots=True)
class MethodEntry:
    """A method in the catalog.

    `class_name` and `module` locate its class; ours are available as ``tokencover.CLASS_NAME`` too.
    For `title` to `departs` see `tokencover.methods.Card`. `positions` is the default, `settings`
    are the fields of the class with defaults, "after=2". `families` support it, those in
    `original_only` require ``positions="original"``.
    """

    name: str
    class_name: str
    module: str
    title: str
    year: int | None
    objective: str
    pruning_point: str
    signal: str
    paper: str
    needs: tuple[str, ...]
    departs: str
    positions: str
    settings: tuple[str, ...]
    families: tuple[str, ...]
    original_only: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FamilyEntry:
    """A model family in the catalog.

    `several_axes` is whether it has multi-axis position IDs (M-RoPE), `tiles` whether images are
    split into a base view and tiles. `reads_tower` and `merges_in_tower` are whether methods can
    read the attention of the vision encoder, and merge tokens in it. `needs` lists model types that
    need a newer transformers than the lowest, as in "aria 5.20", `variants` those that run the code
    of another one and are not numerically verified.
    """

    name: str
    model_types: tuple[str, ...]
    several_axes: bool
    tiles: bool
    reads_tower: bool
    merges_in_tower: bool
    needs: tuple[str, ...]
    variants: tuple[str, ...]

    @property
    def in_tower(self) -> str:
        """What methods can do in the vision encoder, as text."""
        if not self.reads_tower:
            return "-"
        return "read, merge" if self.merges_in_tower else "read"

    @property
    def tested(self) -> str:
        """How it is tested, as text."""
        newer = f"; needs transformers: {', '.join(self.needs)}" if self.needs else ""
        if not self.variants:
            return f"by value{newer}"
        alone = [name for name in self.model_types if name not in self.variants]
        parts = [f"by value ({', '.join(alone)})"] if alone else []
        return "; ".join([*parts, f"through the same code ({', '.join(self.variants)})"]) + newer


@dataclass(frozen=True, slots=True)
class RefusedEntry:
    """An image-text-to-text class of transformers that cannot be pruned, and the reason."""

    model_type: str
    reason: str


def read_methods() -> list[MethodEntry]:
    """Return every method, in the order of lists."""
    return describe_methods() if _has_more() else list(_read_file()[0])


def read_families() -> list[FamilyEntry]:
    """Return every model family, in the order of lists."""
    return describe_families() if _has_more() else list(_read_file()[1])


def read_refused() -> list[RefusedEntry]:
    """Return the image-text-to-text classes that cannot be pruned, by name."""
    return describe_refused() if _has_more() else list(_read_file()[2])


def read_class_names() -> list[str]:
    """Return the classes of our methods that are in the file."""
    return [entry.class_name for entry in _read_file()[0]]


def describe_methods() -> list[MethodEntry]:
    """Describe every method from its class."""
    from tokencover.families import list_claims
    from tokencover.methods import METHODS, list_settings

    return [
        MethodEntry(
            name=kind.name,
            class_name=kind.__name__,
            module=kind.__module__,
            **{name: getattr(kind.card, name) for name in CARD_FIELDS},
            positions=kind.positions,
            settings=tuple(list_settings(kind)),
            families=tuple(each.family.name for each in runs_on),
            original_only=tuple(each.family.name for each in runs_on if not each.as_published),
        )
        for kind in METHODS
        for runs_on in [list_claims(kind)]
    ]


def describe_families() -> list[FamilyEntry]:
    """Describe every family from its object."""
    from tokencover.families import FAMILIES

    return [
        FamilyEntry(
            name=family.name,
            model_types=family.model_types,
            several_axes=family.several_axes,
            tiles=family.tiles,
            reads_tower=family.reads_vision_encoder,
            merges_in_tower=family.merges_in_vision_encoder,
            needs=tuple(f"{name} {version}" for name, version in family.needs.items()),
            variants=family.variants,
        )
        for family in FAMILIES
    ]


def describe_refused() -> list[RefusedEntry]:
    """Describe the classes that cannot be pruned."""
    from tokencover.families import list_refused

    return [RefusedEntry(*each) for each in sorted(list_refused().items())]


def register(thing: Registered) -> Registered:
    """Register a method, a split rule or a model family by its name, in this process.

    The name then works wherever tokencover takes one. Can be used as a decorator. An installed
    package announces its items by an entry point instead: ``tokencover.methods``,
    ``tokencover.splits`` or ``tokencover.families``.

    Parameters
    ----------
    thing : type or Family
        A subclass of `Method` or of `SplitRule`, or a `Family`.

    Raises
    ------
    InputError
        If it is of another type, or its name is taken.
    """
    from tokencover.budget import SPLITS, SplitRule
    from tokencover.families import FAMILIES, Family
    from tokencover.methods import METHODS, Method

    if isinstance(thing, type) and issubclass(thing, Method):
        METHODS.register(thing)
    elif isinstance(thing, type) and issubclass(thing, SplitRule):
        SPLITS.register(thing)
    elif isinstance(thing, Family):
        FAMILIES.register(thing)
    else:
        raise InputError(
            "register takes a subclass of tokencover.Method or of tokencover.budget.SplitRule, "
            f"or a tokencover.families.Family; got {thing!r}."
        )
    return thing


@cache
def _read_file() -> tuple[
    tuple[MethodEntry, ...], tuple[FamilyEntry, ...], tuple[RefusedEntry, ...]
]:
    """Return the content of the file, empty if it is missing or of another version."""
    try:
        found = json.loads(FILE.read_text(encoding="utf-8"))
        methods = tuple(MethodEntry(**_freeze(each)) for each in found["methods"])
        families = tuple(FamilyEntry(**_freeze(each)) for each in found["families"])
        refused = tuple(RefusedEntry(**each) for each in found["refused"])
    except (OSError, ValueError, KeyError, TypeError):
        return (), (), ()
    return methods, families, refused


def _freeze(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(each) if isinstance(each, list) else each for key, each in entry.items()}


def _has_more() -> bool:
    """Whether there is more than in the file; imports nothing."""
    own_methods, own_families, _ = map(len, _read_file())
    announced = entry_points()
    if not own_methods or any(announced.select(group=group) for group in GROUPS):
        return True
    methods, families = map(sys.modules.get, ("tokencover.methods", "tokencover.families"))
    return (methods is not None and len(methods.METHODS) != own_methods) or (
        families is not None and len(families.FAMILIES) != own_families
    )
