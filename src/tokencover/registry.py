"""Items by name: our own, those that other packages announce, those given to `register`.

A package announces an item by an entry point, in its ``pyproject.toml``::

    [project.entry-points."tokencover.methods"]
    yours = "your_package.your_module:YourMethod"
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from tokencover.errors import InputError, LoadError

Item = TypeVar("Item")


class Registry(Generic[Item]):
    """All items of one kind, in the order in which users see them.

    `kind` is its name in messages: "method". `group` is the entry-point group of other packages.
    `check` returns the name of an item, or raises `InputError` for one of another kind. `order` is
    a sort key; by default items are in order of registration.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        check: Callable[[object], str],
        *,
        order: Callable[[Item], Any] | None = None,
    ) -> None:
        self._kind, self._group, self._check = kind, group, check
        self._order = order
        self._found: dict[str, Item] = {}
        self._is_complete = False

    def register(self, item: Item) -> Item:
        """Register an item by its name; also a decorator.

        An item that is defined again, the same notebook cell for example, replaces the old one.
        Raises `InputError` if the item is of another kind, or its name is taken.
        """
        name = self._check(item).lower()
        known = self._found.get(name, item)
        if known != item and _locate(known) != _locate(item):
            raise InputError(
                f"there is another {self._kind} named {name!r} already, {known!r}: rename {item!r}."
            )
        self._found[name] = item
        return item

    def __getitem__(self, name: str) -> Item:
        wanted = str(name).lower()
        if wanted not in self._found:
            self._load_entry_points()
        if wanted in self._found:
            return self._found[wanted]
        raise InputError(
            f"there is no {self._kind} {name!r}{suggest(wanted, self._found)}; there are "
            f"{', '.join(sorted(self._found))}."
        )

    def __contains__(self, name: object) -> bool:
        self._load_entry_points()
        return str(name).lower() in self._found

    def __iter__(self) -> Iterator[Item]:
        self._load_entry_points()
        return iter(self.list_registered())

    def __len__(self) -> int:
        self._load_entry_points()
        return len(self._found)

    def list_registered(self) -> list[Item]:
        """Return registered items, without those that other packages announce."""
        items = list(self._found.values())
        return items if self._order is None else sorted(items, key=self._order)

    def _load_entry_points(self) -> None:
        """Import what other packages announce; an error names the package."""
        if self._is_complete:
            return
        self._is_complete = True  # first, because what is loaded may read the registry
        for point in entry_points(group=self._group):
            try:
                self.register(point.load())
            except Exception as error:
                self._is_complete = False
                owner = point.dist.name if point.dist else point.value
                raise LoadError(
                    f"the {self._kind} {point.name!r} of package {owner!r} cannot be loaded "
                    f"({type(error).__name__}: {error}). Repair or uninstall that package."
                ) from error


def suggest(wanted: str, known: Iterable[str]) -> str:
    """Return a hint for messages, `` (did you mean 'fastv'?)``, or "" if no name is similar."""
    near = difflib.get_close_matches(wanted, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _locate(item: object) -> object:
    """Return module and name of a class, which identify it, or the id of another item."""
    if isinstance(item, type):
        return item.__module__, item.__qualname__
    return id(item)
