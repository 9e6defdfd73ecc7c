"""Methods by name: ``mob``, ``fastv:after=3:budget_mode=flops``, or as JSON.

A method is registered where it is defined, and nowhere else::

    @register_method
    @dataclass(frozen=True)
    class FastV(LastLayerMethod): ...

The package imports every module of this folder; other packages announce methods through the entry
point ``tokencover.methods``. What `name_method` prints, `parse_methods` reads.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

from tokencover.budget import Split, SplitRule, rule_document, rule_from_document
from tokencover.errors import InputError
from tokencover.methods.base import ActsOnce, Card, Method, Objective
from tokencover.registry import Registry, suggest

AnyMethod = TypeVar("AnyMethod", bound=Method)
Spec = Mapping[str, Any]
"""A method as a JSON object, with or without a budget: ``{"method": "fastv", "after": 3}``."""

_ARXIV = re.compile(r"(\d{4})\.\d{4,5}")
_NOT_IN_NAMES = re.compile(r"[\s:,={}\[\]\"']")
"""Separators of methods and settings in text."""
_WORDS = {"True": True, "False": False, "None": None}


def _check_method(kind: object) -> str:
    """Return the name of a method's class; raise if it cannot be listed, named or saved."""
    if not (isinstance(kind, type) and issubclass(kind, Method)):
        raise InputError(f"a method is a subclass of tokencover.Method, got {kind!r}.")
    name, card = kind.name, getattr(kind, "card", None)
    if not isinstance(name, str) or not name or _NOT_IN_NAMES.search(name):
        raise InputError(
            f"{kind.__name__} needs a unique name without spaces, commas, colons, quotes, brackets "
            f'or "=", got {name!r}: write name: ClassVar[str] = "yours".'
        )
    if not isinstance(card, Card):
        raise InputError(
            f"{kind.__name__} needs a card, its row in the table of methods, got {card!r}: write "
            "card: ClassVar[Card] = Card(...)."
        )
    if not dataclasses.is_dataclass(kind) or "__dataclass_fields__" not in vars(kind):
        raise InputError(
            f"{kind.__name__} must be a dataclass, to be printed and saved as JSON: decorate it "
            "with @dataclass(frozen=True)."
        )
    if issubclass(kind, ActsOnce) and "after" not in kind.__dataclass_fields__:
        raise InputError(f"{kind.__name__} prunes once: give it a field, after: int = 1.")
    return name


def _order(kind: type[Method]) -> tuple[Any, ...]:
    """Order MoB and its parts first, then published methods by date, then the controls.

    A paper without an arXiv number is listed at the end of its year.
    """
    card = kind.card
    number = _ARXIV.fullmatch(card.paper)
    date = number[0] if number else f"{(card.year or 0) % 100:02}99"
    objective = get_args(Objective).index(card.objective)
    return card.year is None, not card.ours, date, objective, kind.name


METHODS: Registry[type[Method]] = Registry(
    "method", "tokencover.methods", _check_method, order=_order
)
"""Every method by name, in the order of the lists that users read."""


def register_method(kind: type[AnyMethod]) -> type[AnyMethod]:
    """Register a method by its name; a decorator of its class."""
    METHODS.register(kind)
    return kind


def get_method(name: str, **settings: Any) -> Method:
    """Build a method by name: ``get_method("fastv", budget=64)``.

    Parameters
    ----------
    name : str
        ``tokencover methods`` lists all names.
    **settings
        Parameters of its class.
    """
    kind = METHODS[name]
    known = [field.name for field in dataclasses.fields(kind) if field.init]  # type: ignore[arg-type]
    unknown = sorted(set(settings) - set(known))
    if unknown:
        raise InputError(
            f"{name} has no setting {', '.join(unknown)}{suggest(unknown[0], known)}; it has "
            f"{', '.join(known)}."
        )
    try:
        return kind(**settings)
    except TypeError as error:
        raise InputError(f"{name} cannot be built from {settings}: {error}.") from error


def from_json(text: str) -> Method:
    """Build the method that `to_json` wrote."""
    return make_method(_parse_json(text))


def make_method(spec: Mapping[str, Any]) -> Method:
    """Build the method with the name and settings of ``{"method": "fastv", "budget": 64}``."""
    settings = {key: _decode(value) for key, value in spec.items() if key != "method"}
    return get_method(spec["method"], **settings)


def to_json(method: Method) -> str:
    """Write a method as one line of JSON, which `from_json` reads."""
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
        settings = {
            field.name: _encode(getattr(value, field.name)) for field in fields if field.init
        }
        return {"method": value.name, **settings}
    if isinstance(value, Split):
        return dataclasses.asdict(value)
    if isinstance(value, SplitRule):
        return rule_document(value)
    if isinstance(value, tuple | list):
        return [_encode(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _encode(item) for key, item in value.items()}
    if value is None or isinstance(value, str | int | float):
        return value
    raise InputError(f"{value!r} cannot be written as JSON: use plain settings.")


def parse_methods(text: str) -> list[Spec]:
    """Parse several methods, separated by commas: ``mob,fastv:after=3,{"method": "dart"}``."""
    return [parse_method(part) for part in _split_outside_brackets(text, ",") if part.strip()]


def parse_method(text: str) -> Spec:
    """Parse one method: a name with settings, ``fastv:after=3``, or a JSON object."""
    text = text.strip()
    if text.startswith("{"):
        return _parse_json(text)
    name, *parts = (part.strip() for part in _split_outside_brackets(text, ":"))
    spec: dict[str, Any] = {"method": name}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or key in ("", "budget"):
            raise InputError(
                f"{part!r} is not a setting in {text!r}: write name:setting=value, for example "
                "mob:after=2. Budgets have a separate option."
            )
        spec[key] = _parse_value(key, value)
    return spec


def name_method(method: Method, *, hidden: Sequence[str] = ("budget",)) -> str:
    """Write a method as `parse_method` reads it: name, and settings that are not the defaults."""
    parts = [method.name]
    for field in dataclasses.fields(method):  # type: ignore[arg-type]
        value = getattr(method, field.name)
        if field.init and field.name not in hidden and value != _get_default(field):
            parts.append(f"{field.name}={_write_value(value, hidden)}")
    return ":".join(parts)


def list_settings(kind: type[Method]) -> list[str]:
    """List the settings of a method's class with their defaults: "budget", "after=2"."""
    listed = []
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        default = _get_default(field)
        if field.init:
            is_required = default is dataclasses.MISSING
            listed.append(
                field.name if is_required else f"{field.name}={_write_value(default, ())}"
            )
    return listed


def _write_value(value: Any, hidden: Sequence[str]) -> str:
    """Write what `_parse_value` reads; objects such as split rules are only shown."""
    if isinstance(value, Method):
        name = name_method(value, hidden=hidden)
        spec = parse_method(name)
        return name if len(spec) == 1 else json.dumps(spec, separators=(",", ":"))
    if isinstance(value, tuple):
        return json.dumps(value, separators=(",", ":"))
    return str(value)


def _get_default(field: dataclasses.Field[Any]) -> Any:
    factory = field.default_factory
    return field.default if factory is dataclasses.MISSING else factory()


def _parse_json(text: str) -> Spec:
    try:
        spec = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{text!r} is not JSON: {error}.") from error
    if not isinstance(spec, dict) or not isinstance(spec.get("method"), str):
        raise InputError(f'A method is a JSON object with a "method" name, got {text!r}.')
    return spec


def _parse_value(key: str, text: str) -> Any:
    """Parse a number, true, false or null; `inner` is a method; anything else is a string."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return {"method": text} if key == "inner" else _WORDS.get(text, text)


def _split_outside_brackets(text: str, separator: str) -> list[str]:
    """Split at separators outside JSON objects, lists and strings."""
    parts, depth, quoted = [""], 0, False
    for before, letter in zip(" " + text, text, strict=False):
        if letter == '"' and before != "\\":
            quoted = not quoted
        elif not quoted:
            depth += (letter in "{[") - (letter in "}]")
        if letter == separator and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
