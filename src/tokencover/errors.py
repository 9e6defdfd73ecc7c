"""Errors and warnings of tokencover, and imports of optional packages.

The command line exits with code 2 for an `InputError`, and with code 1 for every other error.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

SOURCE: Final = "git+https://github.com/tokencover/tokencover"
"""Where pip gets tokencover: no release is on the package index yet."""


class TokenCoverError(Exception):
    """Base class of all errors of tokencover."""


class InputError(TokenCoverError, ValueError):
    """An invalid value of an argument or option."""


class BudgetError(InputError):
    """A budget that a method cannot meet on these inputs."""


class MissingPackageError(TokenCoverError, ImportError):
    """An optional package is not installed."""


class LoadError(TokenCoverError):
    """A model or dataset could not be downloaded, or its files are damaged."""


class InternalsError(TokenCoverError, RuntimeError):
    """The installed transformers or torch lacks a name that pruning relies on."""


class WriteError(TokenCoverError, OSError):
    """A file could not be written; the message names it."""


class TokenCoverWarning(UserWarning):
    """A warning of tokencover."""


def get_install_command(package: str) -> str:
    """Return what installs a package, or tokencover with an extra: "tokencover[video]"."""
    source = f" @ {SOURCE}" if package.startswith("tokencover") else ""
    if package.startswith("tokencover-models"):
        source += "#subdirectory=models"
    return f"pip install '{package}{source}'"


def import_extra(name: str, purpose: str, install: str, otherwise: str) -> Any:
    """Import a module, or raise an error with the command that installs its package.

    `purpose` is the beginning of a sentence, "reading video files"; `install` is what pip installs,
    "tokencover[video]"; `otherwise` says what to do without it.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            f"{purpose} needs {name}, which is not installed: `{get_install_command(install)}`, or "
            f"{otherwise}."
        ) from error
