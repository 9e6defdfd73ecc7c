"""Things known by name: our own, those that other packages announce, those given to `register`.

A package announces what it has through an entry point, in its own ``pyproject.toml``::

    [project.entry-points."tokencover.methods"]
    yours = "your_package.your_module:YourMethod"
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from tokencover.errors import InputError

Thing = TypeVar("Thing")


class Plugins(Generic[Thing]):
    """Everything of one kind, in the order in which it is listed to users.

    Parameters
    ----------
    kind : str
        What one is called in messages: "method".
    group : str
        The entry-point group in which other packages announce theirs: "tokencover.methods".
    check : callable
        Gives the name of a thing; raises `InputError` if it is of another kind.
    """

    def __init__(self, kind: str, group: str, check: Callable[[object], str]) -> None:
        self._kind, self._group, self._check = kind, group, check
        self._found: dict[str, Thing] = {}
        self._announced_are_loaded = False

    def register(self, thing: Thing) -> Thing:
        """Make it known by its name; can be used as a decorator.

        Raises
        ------
        InputError
            If it is of another kind, or another thing has the name already.
        """
        name = self._check(thing).lower()
        if self._found.get(name, thing) != thing:
            raise InputError(
                f"there is another {self._kind} named {name!r} already, {self._found[name]!r}: "
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
        near = difflib.get_close_matches(wanted, self._found, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InputError(
            f"there is no {self._kind} {name!r};{hint} there are {', '.join(sorted(self._found))}."
        )

    def __iter__(self) -> Iterator[Thing]:
        self._load_announced()
        return iter(list(self._found.values()))

    def __len__(self) -> int:
        self._load_announced()
        return len(self._found)

    def _load_announced(self) -> None:
        """Import what other packages announce; the first failure is told with its package."""
        if self._announced_are_loaded:
            return
        for point in entry_points(group=self._group):
            try:
                self.register(point.load())
            except Exception as error:
                owner = point.dist.name if point.dist else point.value
                raise InputError(
                    f"the {self._kind} {point.name!r} of package {owner!r} cannot be loaded "
                    f"({type(error).__name__}: {error}): repair or uninstall that package."
                ) from error
        self._announced_are_loaded = True
