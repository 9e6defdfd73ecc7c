"""Methods as a person names them: ``mob``, ``fastv:after=3:budget_mode=flops``, or as JSON.

Every command reads methods through `parse_methods`, and everything printed names them by
`name_method`, so that what one command prints can be given to another.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tokencover.errors import InputError
from tokencover.methods.base import Method

Spec = Mapping[str, Any]
"""A method as JSON has it, with or without its budget: ``{"method": "fastv", "after": 3}``."""

_WORDS = {"True": True, "False": False, "None": None}


def parse_methods(text: str) -> list[Spec]:
    """Read several methods, separated by commas: ``mob,fastv:after=3,{"method": "dart"}``."""
    return [parse_method(part) for part in _split_outside_brackets(text, ",") if part.strip()]


def parse_method(text: str) -> Spec:
    """Read one method: a name with settings, ``fastv:after=3``, or a JSON object."""
    text = text.strip()
    if text.startswith("{"):
        return _read_json(text)
    name, *parts = (part.strip() for part in _split_outside_brackets(text, ":"))
    spec: dict[str, Any] = {"method": name}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or key in ("", "budget"):
            raise InputError(
                f"{part!r} is no setting in {text!r}: write name:setting=value, for example "
                "mob:after=2; budgets have an option of their own."
            )
        spec[key] = _read_value(key, value)
    return spec


def name_method(method: Method, *, hidden: Sequence[str] = ("budget",)) -> str:
    """Write what `parse_method` reads: the name, and the settings that are not the defaults.

    Parameters
    ----------
    method : Method
        What to name.
    hidden : sequence of str
        Settings to leave out because they are shown elsewhere.
    """
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


def shorten_labels(labels: Sequence[str]) -> dict[str, str]:
    """Call methods by name alone, without settings; where one is there twice, one of them.

    That is the one without settings, else the first.

    Parameters
    ----------
    labels : sequence of str
        As `name_method` writes them; one may occur several times.

    Returns
    -------
    dict
        What each label is called.
    """
    called: dict[str, str] = {}
    for label in dict.fromkeys(labels):
        name = label.partition(":")[0]
        called[label] = label if name in labels or name in called.values() else name
    return called


def _write_value(value: Any, hidden: Sequence[str]) -> str:
    """What `_read_value` reads; settings that are objects of their own are only shown."""
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


def _read_json(text: str) -> Spec:
    try:
        spec = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{text!r} is not JSON: {error}.") from error
    if not isinstance(spec, dict) or not isinstance(spec.get("method"), str):
        raise InputError(f'a method is an object with a "method" name, got {text!r}.')
    return spec


def _read_value(key: str, text: str) -> Any:
    """A number, true, false or null; `inner` is a method; everything else is a word."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return {"method": text} if key == "inner" else _WORDS.get(text, text)


def _split_outside_brackets(text: str, separator: str) -> list[str]:
    """Cut at the separators that stand in no JSON object, list or string."""
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
