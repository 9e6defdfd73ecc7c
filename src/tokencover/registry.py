"""Things known by name: our own, those that other packages announce, those given to `register`.

A package announces what it has through an entry point, in its own ``pyproject.toml``::

    [project.entry-points."tokencover.methods"]
    yours = "your_package.your_module:YourMethod"
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from tokencover.errors import InputError, LoadError

Thing = TypeVar("Thing")


class Registry(Generic[Thing]):
    """Everything of one kind, in the order in which it is listed to users.

    Parameters
    ----------
    kind : str
        What one is called in messages: "method".
    group : str
        The entry-point group in which other packages announce theirs: "tokencover.methods".
    check : callable
        Gives the name of a thing; raises `InputError` if it is of another kind.
    order : callable, optional
        A sort key of things; without it they are listed as they were registered.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        check: Callable[[object], str],
        *,
        order: Callable[[Thing], Any] | None = None,
    ) -> None:
        self._kind, self._group, self._check = kind, group, check
        self._order = order
        self._found: dict[str, Thing] = {}
        self._announced_are_loaded = False

    def register(self, thing: Thing) -> Thing:
        """Make it known by its name; can be used as a decorator.

        What was defined anew, the same cell of a notebook for example, takes its own old place.

        Raises
        ------
        InputError
            If it is of another kind, or another thing has the name already.
        """
        name = self._check(thing).lower()
        known = self._found.get(name, thing)
        if known != thing and _locate(known) != _locate(thing):
            raise InputError(
                f"there is another {self._kind} named {name!r} already, {known!r}: "
                f"give {thing!r} a name of its own."
            )
        self._found[name] = thing
        return thing

    def __getitem__(self, name: str) -> Thing:
        wanted = str(name).lower()
        if wanted not in self._found:
            self._load_announced()
        if wanted in self._found:
            return self._found[wanted]
        raise InputError(
            f"there is no {self._kind} {name!r}{suggest(wanted, self._found)}; there are "
            f"{', '.join(sorted(self._found))}."
        )

    def __contains__(self, name: object) -> bool:
        self._load_announced()
        return str(name).lower() in self._found

    def __iter__(self) -> Iterator[Thing]:
        self._load_announced()
        return iter(self.list_registered())

    def __len__(self) -> int:
        self._load_announced()
        return len(self._found)

    def list_registered(self) -> list[Thing]:
        """What is registered already, without what other packages announce."""
        found = list(self._found.values())
        return found if self._order is None else sorted(found, key=self._order)

    def _load_announced(self) -> None:
        """Import what other packages announce; the first failure is told with its package."""
        if self._announced_are_loaded:
            return
        self._announced_are_loaded = True  # before, because what is loaded may ask what there is
        for point in entry_points(group=self._group):
            try:
                self.register(point.load())
            except Exception as error:
                self._announced_are_loaded = False
                owner = point.dist.name if point.dist else point.value
                raise LoadError(
                    f"the {self._kind} {point.name!r} of package {owner!r} cannot be loaded "
                    f"({type(error).__name__}: {error}): repair or uninstall that package."
                ) from error


def suggest(wanted: str, known: Iterable[str]) -> str:
    """A hint for messages, `` (did you mean 'fastv'?)``; empty if nothing known is near."""
    near = difflib.get_close_matches(wanted, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _locate(thing: object) -> object:
    """Module and name of a class; anything else is where it is, and nowhere twice."""
    if isinstance(thing, type):
        return thing.__module__, thing.__qualname__
    return id(thing)
