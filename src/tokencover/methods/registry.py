"""Methods by name, and as JSON.

A method is registered where it is written, and nowhere else::

    @register_method
    @dataclass(frozen=True)
    class FastV(ActsOnce): ...

The package imports every module next to this one; other packages announce theirs through the
entry point ``tokencover.methods``, see `tokencover.registry`.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar, get_args

from tokencover.budget import Split, SplitRule, rule_document, rule_from_document
from tokencover.errors import InputError
from tokencover.methods.base import ActsOnce, Card, Method, Objective
from tokencover.registry import Registry, suggest

AnyMethod = TypeVar("AnyMethod", bound=Method)

_ARXIV = re.compile(r"(\d{4})\.\d{4,5}")
_NOT_IN_NAMES = re.compile(r"[\s:,={}\[\]\"']")
"""What separates methods and settings where a person names them, see `naming`."""


def _check_method(kind: object) -> str:
    """The name of a method's class; refuses what is none, or cannot be listed, named or saved."""
    if not (isinstance(kind, type) and issubclass(kind, Method)):
        raise InputError(f"a method is a subclass of tokencover.Method, got {kind!r}.")
    name, card = kind.name, getattr(kind, "card", None)
    if not isinstance(name, str) or not name or _NOT_IN_NAMES.search(name):
        raise InputError(
            f"{kind.__name__} needs a name of its own to be asked for by, without spaces, commas, "
            f'colons, quotes, brackets or "=", got {name!r}: write name: ClassVar[str] = "yours".'
        )
    if not isinstance(card, Card):
        raise InputError(
            f"{kind.__name__} needs a card, its row in the table of methods, got {card!r}: write "
            "card: ClassVar[Card] = Card(...)."
        )
    if not dataclasses.is_dataclass(kind) or "__dataclass_fields__" not in vars(kind):
        raise InputError(
            f"{kind.__name__} must be a dataclass, so that it prints and becomes JSON: decorate it "
            "with @dataclass(frozen=True)."
        )
    if issubclass(kind, ActsOnce) and "after" not in kind.__dataclass_fields__:
        raise InputError(f"{kind.__name__} prunes once: give it a field, after: int = 1.")
    return name


def _order(kind: type[Method]) -> tuple[Any, ...]:
    """MoB and its halves, what was published by date, the controls.

    The number of a preprint begins with its year and month; what has none goes to the end of its
    year.
    """
    card = kind.card
    number = _ARXIV.fullmatch(card.paper)
    date = number[0] if number else f"{(card.year or 0) % 100:02}99"
    place = get_args(Objective).index(card.objective)
    return card.year is None, not card.ours, date, place, kind.name


METHODS: Registry[type[Method]] = Registry(
    "method", "tokencover.methods", _check_method, order=_order
)
"""Every method, by name, in the order in which they are listed to users."""


def register_method(kind: type[AnyMethod]) -> type[AnyMethod]:
    """Make a method known by its name; to be used as a decorator of its class."""
    METHODS.register(kind)
    return kind


def get_method(name: str, **settings: Any) -> Method:
    """A method by its name, ``get_method("fastv", budget=64)``.

    Parameters
    ----------
    name : str
        See `tokencover methods` for all names.
    **settings
        What its class takes.
    """
    kind = METHODS[name]
    known = [each.name for each in dataclasses.fields(kind) if each.init]  # type: ignore[arg-type]
    unknown = sorted(set(settings) - set(known))
    if unknown:
        raise InputError(
            f"{name} has no setting {', '.join(unknown)}{suggest(unknown[0], known)}; it has "
            f"{', '.join(known)}."
        )
    try:
        return kind(**settings)
    except TypeError as error:
        raise InputError(f"{name} cannot be made from {settings}: {error}.") from error


def from_json(text: str) -> Method:
    """The method that `to_json` wrote."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"this is not JSON ({error}): {text[:80]!r}.") from error
    if not isinstance(found, dict) or "method" not in found:
        raise InputError(f'a method is an object with a "method" name, got {text[:80]!r}.')
    return make_method(found)


def make_method(spec: Mapping[str, Any]) -> Method:
    """The method with the name and settings of ``{"method": "fastv", "budget": 64}``."""
    settings = {key: _decode(each) for key, each in spec.items() if key != "method"}
    return get_method(spec["method"], **settings)


def to_json(method: Method) -> str:
    """One line of JSON from which `from_json` makes an equal method."""
    return json.dumps(_encode(method))


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_decode, value))
    if not isinstance(value, dict):
        return value
    if "method" in value:
        return make_method(value)
    if "rule" in value:
        return rule_from_document(value)
    try:
        return Split(**value)
    except TypeError as error:
        raise InputError(f"{value} is neither a method nor a split.") from error


def _encode(value: Any) -> Any:
    if isinstance(value, Method):
        fields = dataclasses.fields(value)  # type: ignore[arg-type]
        settings = {each.name: _encode(getattr(value, each.name)) for each in fields if each.init}
        return {"method": value.name, **settings}
    if isinstance(value, Split):
        return dataclasses.asdict(value)
    if isinstance(value, SplitRule):
        return rule_document(value)
    if isinstance(value, tuple | list):
        return [_encode(each) for each in value]
    if isinstance(value, Mapping):
        return {key: _encode(each) for key, each in value.items()}
    if value is None or isinstance(value, str | int | float):
        return value
    raise InputError(f"{value!r} cannot be written as JSON: use plain settings.")
