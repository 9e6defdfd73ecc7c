"""Small JSON files that are either whole or not there."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokencover.errors import InputError


def write_document(path: str | os.PathLike[str], kind: str, document: Mapping[str, Any]) -> None:
    """Write a document; who reads at the same time sees the old file or the new one.

    Parameters
    ----------
    path : str or path
        Its folder is made if need be.
    kind : str
        What the document is; `read_document` asks for it.
    document : Mapping
        Plain JSON values, with its "version".
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    unfinished = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"format": kind, **document}, file, indent=1, allow_nan=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def read_document(
    path: str | os.PathLike[str], kind: str, version: int, *, make: str
) -> dict[str, Any]:
    """Read what `write_document` wrote.

    Parameters
    ----------
    path : str or path
        Where it lies.
    kind, version : str, int
        What it must be.
    make : str
        How to make a new one, for the messages.

    Raises
    ------
    InputError
        If the file is missing, damaged, something else, or of another version.
    """
    source = Path(path)
    if not source.is_file():
        raise InputError(f"there is no {kind} at {source}: {make}.")
    try:
        found = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{source} cannot be read as JSON ({error}): {make}.") from error
    return checked_document(found, kind, version, source=str(source), make=make)


def checked_document(
    found: Any, kind: str, version: int, *, source: str, make: str
) -> dict[str, Any]:
    """The document without its kind and version, if they are right."""
    if not isinstance(found, dict) or found.get("format") != kind:
        raise InputError(f"{source} is not a {kind}: {make}.")
    if found.get("version") != version:
        raise InputError(
            f"{source} is a {kind} of version {found.get('version')!r}, this tokencover reads "
            f"version {version}: {make}."
        )
    return {key: value for key, value in found.items() if key not in ("format", "version")}
