"""Atomic files, locks, and JSON documents."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from tokencover.errors import InputError, WriteError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Content = bytes | str | Callable[[BinaryIO], object]
"""Content of a file: bytes, text (UTF-8), or a function that writes to the open file."""

UNFINISHED: Final = ".part"
"""Suffix of a file that is being written, or was when its process was killed."""


def write_atomically(path: str | os.PathLike[str], content: Content) -> None:
    """Write a file and its folder; at any time readers get the old file or the new one.

    Several processes may write the same file: the last one wins. After an error, a full disk for
    example, the old file is unchanged, no other file is left, and a `WriteError` is raised.
    """
    target = Path(path)
    with name_path(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}{UNFINISHED}")
        try:
            with draft.open("xb") as file:
                if callable(content):
                    content(file)
                else:
                    file.write(content.encode("utf-8") if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


@contextmanager
def name_path(path: Path) -> Iterator[None]:
    """Raise a `WriteError` that names the path instead of the system's error."""
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(
            f"{path} cannot be written: {error.strerror or error}. Choose another path, or free "
            "space there."
        ) from error


@contextmanager
def hold_lock(path: str | os.PathLike[str], *, shared: bool = False) -> Iterator[bool]:
    """Hold a lock inside the block; it ends with the process. The file of the lock stays.

    Yields False if another process holds it. Systems without such locks (Windows) always grant it.
    With `shared`, other processes may hold it shared too.
    """
    if fcntl is None:
        yield True
        return
    with Path(path).open("ab") as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def read_object(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a JSON object; raises `OSError`, or `ValueError` for other content."""
    found = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found


def write_document(path: str | os.PathLike[str], kind: str, document: Mapping[str, Any]) -> None:
    """Write a JSON document atomically; `kind` is checked by `read_document`."""
    text = json.dumps({"format": kind, **document}, indent=1, allow_nan=False)
    write_atomically(path, text + "\n")


def read_document(
    path: str | os.PathLike[str], kind: str, version: int, *, make: str
) -> dict[str, Any]:
    """Read what `write_document` wrote.

    `make` says in errors how to create a new document. Raises `InputError` if the file is missing,
    damaged, or of another kind or version.
    """
    source = Path(path)
    if not source.is_file():
        raise InputError(f"there is no {kind} at {source}: {make}.")
    try:
        found = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{source} cannot be read as JSON ({error}): {make}.") from error
    return check_document(found, kind, version, source=str(source), make=make)


def check_document(
    found: Any, kind: str, version: int, *, source: str, make: str
) -> dict[str, Any]:
    """Return the document without its kind and version, or raise an error for other ones."""
    if not isinstance(found, dict) or found.get("format") != kind:
        raise InputError(f"{source} is not a {kind}: {make}.")
    if found.get("version") != version:
        raise InputError(
            f"{source} is a {kind} of version {found.get('version')!r}, this tokencover reads "
            f"version {version}: {make}."
        )
    return {key: value for key, value in found.items() if key not in ("format", "version")}
