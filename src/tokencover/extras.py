"""Packages that only some people need."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from tokencover.errors import MissingPackageError

SOURCE: Final = "git+https://github.com/tokencover/tokencover"
"""Where pip gets tokencover: no release is on the package index yet."""


def get_install_command(package: str) -> str:
    """Return what installs a package, or tokencover with an extra: "tokencover[video]"."""
    source = f" @ {SOURCE}" if package.startswith("tokencover") else ""
    if package.startswith("tokencover-models"):
        source += "#subdirectory=models"
    return f"pip install '{package}{source}'"


def import_extra(name: str, purpose: str, install: str, otherwise: str) -> Any:
    """Import a package, or raise an error with the command that installs it.

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
        raise MissingPackageError(
            f"{purpose} needs {name}, which is not installed: `{get_install_command(install)}`, or "
            f"{otherwise}."
        ) from error
