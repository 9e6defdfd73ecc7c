"""Methods as a person names them: ``mob``, ``fastv:after=3:budget_mode=flops``."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from tokencover.budget import Budget
from tokencover.errors import InputError
from tokencover.methods import get_method
from tokencover.methods.base import Method


def method_of(text: str, budget: Budget) -> Method:
    """The method with this name, settings and budget."""
    name, *parts = (part.strip() for part in text.split(":"))
    settings: dict[str, Any] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or key == "budget":
            raise InputError(
                f"{part!r} is no setting in {text!r}: write name:setting=value, mob:after=2 say; "
                "budgets have an option of their own."
            )
        settings[key] = _value(value)
    return get_method(name, budget=budget, **settings)


def name_of(method: Method) -> str:
    """Name and settings, but for the budget and for what is as by default."""
    parts = [method.name]
    for each in dataclasses.fields(method):  # type: ignore[arg-type]
        value = getattr(method, each.name)
        if each.init and each.name != "budget" and value != each.default:
            parts.append(f"{each.name}={value}")
    return ":".join(parts)


def _value(text: str) -> Any:
    """A number, true, false or null; everything else is a word."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return {"True": True, "False": False, "None": None}.get(text, text)
