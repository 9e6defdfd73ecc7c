"""Packages that only some people need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tokencover.errors import InputError


def import_extra(name: str, purpose: str, install: str, otherwise: str) -> Any:
    """Import a package, or say how to get it.

    Parameters
    ----------
    name : str
        Of the module.
    purpose : str
        What needs it, as the beginning of a sentence: "reading video files".
    install : str
        What pip installs: "tokencover[video]".
    otherwise : str
        What can be done without it.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(
            f"{purpose} needs {name}, which is not installed: `pip install '{install}'`, or "
            f"{otherwise}."
        ) from error
