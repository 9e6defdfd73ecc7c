"""What there is, without importing it: every method and every model family, for lists and names.

``catalog.json`` is written from the classes themselves (``make catalog``), so that listing them
takes no torch. Only if other packages bring methods or families of their own, if `register` was
called, or if the file is of no use, is everything imported and described anew.
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

Registered = TypeVar("Registered")


@dataclass(frozen=True, slots=True)
class MethodEntry:
    """A method as lists show it.

    Attributes
    ----------
    name : str
        What `get_method` and the command line call it.
    class_name, module : str
        Where it lives; a class of tokencover's own is ``tokencover.CLASS_NAME`` too.
    title, year, objective, pruning_point, signal, paper, needs, departs
        See `tokencover.methods.Card`.
    positions : str
        What positions kept tokens have by default, "original" or "reindex".
    settings : tuple of str
        The fields of its class with their defaults, "after=2".
    families : tuple of str
        The model families it runs on.
    original_only : tuple of str
        Those of them where it must be given ``positions="original"``.
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
    """A model family as lists show it.

    Attributes
    ----------
    name : str
        What users call it.
    model_types : tuple of str
        The ``config.model_type`` values it serves.
    several_axes : bool
        Whether positions are rows, columns and times, so that they cannot be numbered anew.
    tiles : bool
        Whether pictures come as a base view and tiles of it.
    reads_tower : bool
        Whether it is known which tokens of the vision tower make which visual token, so that
        methods can look at its attention.
    merges_in_tower : bool
        Whether they become visual tokens one to one, or square by square, in a tower whose blocks
        are known, so that methods can merge them there.
    needs : tuple of str
        Which of `model_types` need a newer transformers than the lowest, as in "aria 5.20".
    variants : tuple of str
        Those of `model_types` that run the code of another one, and are not numerically verified.
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
        """What methods may do in the vision tower, in words."""
        if not self.reads_tower:
            return "-"
        return "read, merge" if self.merges_in_tower else "read"

    @property
    def tested(self) -> str:
        """How it is tested, in words."""
        newer = f"; needs transformers: {', '.join(self.needs)}" if self.needs else ""
        if not self.variants:
            return f"by value{newer}"
        alone = [name for name in self.model_types if name not in self.variants]
        parts = [f"by value ({', '.join(alone)})"] if alone else []
        return "; ".join([*parts, f"through the same code ({', '.join(self.variants)})"]) + newer


@dataclass(frozen=True, slots=True)
class RefusedEntry:
    """An image-text-to-text class of transformers that cannot be pruned.

    Attributes
    ----------
    model_type : str
        Its ``config.model_type``.
    reason : str
        Why.
    """

    model_type: str
    reason: str


def read_methods() -> list[MethodEntry]:
    """Every method, in the order in which they are listed to users."""
    return describe_methods() if _find_others() else list(_read_file()[0])


def read_families() -> list[FamilyEntry]:
    """Every model family, in the order in which they are listed to users."""
    return describe_families() if _find_others() else list(_read_file()[1])


def read_refused() -> list[RefusedEntry]:
    """The image-text-to-text classes that cannot be pruned, by name."""
    return describe_refused() if _find_others() else list(_read_file()[2])


def read_class_names() -> list[str]:
    """The classes of tokencover's own methods, as the file has them."""
    return [entry.class_name for entry in _read_file()[0]]


def describe_methods() -> list[MethodEntry]:
    """What `read_methods` gives, from the classes themselves."""
    from tokencover.families import list_claims
    from tokencover.methods import METHODS, list_settings

    found = []
    for kind in METHODS:
        card, runs_on = kind.card, list_claims(kind)
        found.append(
            MethodEntry(
                name=kind.name,
                class_name=kind.__name__,
                module=kind.__module__,
                title=card.title,
                year=card.year,
                objective=card.objective,
                pruning_point=card.pruning_point,
                signal=card.signal,
                paper=card.paper,
                needs=card.needs,
                departs=card.departs,
                positions=kind.positions,
                settings=tuple(list_settings(kind)),
                families=tuple(each.family.name for each in runs_on),
                original_only=tuple(each.family.name for each in runs_on if not each.as_published),
            )
        )
    return found


def describe_families() -> list[FamilyEntry]:
    """What `read_families` gives, from the families themselves."""
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
    """What `read_refused` gives, from the families themselves."""
    from tokencover.families import list_refused

    return [RefusedEntry(*each) for each in sorted(list_refused().items())]


def register(thing: Registered) -> Registered:
    """Make a method, a split rule or a model family known by its name, in this process.

    It then works wherever tokencover takes a name. Can be used as a decorator. A package that is
    installed announces what it has through an entry point instead: ``tokencover.methods``,
    ``tokencover.splits`` or ``tokencover.families``.

    Parameters
    ----------
    thing : type or Family
        A subclass of `Method` or of `SplitRule`, or a `Family`.

    Raises
    ------
    InputError
        If it is something else, or its name is taken.
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
            "what can be registered is a subclass of tokencover.Method or of "
            f"tokencover.budget.SplitRule, or a tokencover.families.Family; got {thing!r}."
        )
    return thing


@cache
def _read_file() -> tuple[
    tuple[MethodEntry, ...], tuple[FamilyEntry, ...], tuple[RefusedEntry, ...]
]:
    """What the file has; nothing if it is missing or of another version, as while it is written."""
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


def _find_others() -> bool:
    """Whether there is more than the file knows; imports nothing."""
    own_methods, own_families, _ = map(len, _read_file())
    announced = entry_points()
    if not own_methods or any(announced.select(group=group) for group in GROUPS):
        return True
    methods, families = map(sys.modules.get, ("tokencover.methods", "tokencover.families"))
    return (methods is not None and len(methods.METHODS) != own_methods) or (
        families is not None and len(families.FAMILIES) != own_families
    )
