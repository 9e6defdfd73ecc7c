"""Methods by name, and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tokencover.budget import Split, SplitRule, rule_document, rule_from_document
from tokencover.errors import InputError
from tokencover.methods.base import Method


class Registry:
    """The methods that can be asked for by name.

    Parameters
    ----------
    methods : iterable of type
        Dataclasses, each with a name of its own.
    """

    def __init__(self, methods: Iterable[type[Method]]) -> None:
        self._methods = {method.name: method for method in methods}

    def __iter__(self) -> Iterator[type[Method]]:
        return iter(self._methods.values())

    def __getitem__(self, name: str) -> type[Method]:
        kind = self._methods.get(str(name).lower())
        if kind is None:
            raise InputError(
                f"there is no method {name!r}; there are {', '.join(sorted(self._methods))}."
            )
        return kind

    def get_method(self, name: str, **settings: Any) -> Method:
        """A method by its name, ``get_method("fastv", budget=64)``.

        Parameters
        ----------
        name : str
            See `tokencover methods` for all names.
        **settings
            What its class takes.
        """
        kind = self[name]
        known = [each.name for each in dataclasses.fields(kind) if each.init]  # type: ignore[arg-type]
        unknown = sorted(set(settings) - set(known))
        if unknown:
            raise InputError(
                f"{name} has no setting {', '.join(unknown)}; it has {', '.join(known)}."
            )
        try:
            return kind(**settings)
        except TypeError as error:
            raise InputError(f"{name} cannot be made from {settings}: {error}.") from error

    def from_json(self, text: str) -> Method:
        """The method that `to_json` wrote."""
        try:
            found = json.loads(text)
        except json.JSONDecodeError as error:
            raise InputError(f"this is not JSON ({error}): {text[:80]!r}.") from error
        if not isinstance(found, dict) or "method" not in found:
            raise InputError(f'a method is an object with a "method" name, got {text[:80]!r}.')
        return self.make_method(found)

    def make_method(self, spec: Mapping[str, Any]) -> Method:
        """The method with the name and settings of ``{"method": "fastv", "budget": 64}``."""
        settings = {key: self._decoded(each) for key, each in spec.items() if key != "method"}
        return self.get_method(spec["method"], **settings)

    def _decoded(self, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(map(self._decoded, value))
        if not isinstance(value, dict):
            return value
        if "method" in value:
            return self.make_method(value)
        if "rule" in value:
            return rule_from_document(value)
        try:
            return Split(**value)
        except TypeError as error:
            raise InputError(f"{value} is neither a method nor a split.") from error


def to_json(method: Method) -> str:
    """One line of JSON from which `from_json` makes an equal method."""
    return json.dumps(_encoded(method))


def _encoded(value: Any) -> Any:
    if isinstance(value, Method):
        fields = dataclasses.fields(value)  # type: ignore[arg-type]
        settings = {each.name: _encoded(getattr(value, each.name)) for each in fields if each.init}
        return {"method": value.name, **settings}
    if isinstance(value, Split):
        return dataclasses.asdict(value)
    if isinstance(value, SplitRule):
        return rule_document(value)
    if isinstance(value, tuple | list):
        return [_encoded(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _encoded(each) for key, each in value.items()}
    if value is None or isinstance(value, str | int | float):
        return value
    raise InputError(f"{value!r} cannot be written as JSON: use plain settings.")
