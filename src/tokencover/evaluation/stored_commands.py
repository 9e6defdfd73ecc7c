"""The commands that wrote a folder of results, kept beside them.

They are no part of the run's description: a resumed run or a shard may be started by another
command, and its results are the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tokencover.errors import InputError
from tokencover.files import write_atomically

COMMANDS: Final = "commands.txt"
"""One command per line, each only once."""


def record_command(folder: Path, command: str) -> None:
    """Add a command to those of a folder of results."""
    line = " ".join(command.splitlines())
    commands = read_commands(folder)
    if line not in commands:
        write_atomically(folder / COMMANDS, "".join(f"{each}\n" for each in [*commands, line]))


def read_commands(folder: Path) -> list[str]:
    """Commands that wrote a folder of results; none if Python code or an earlier version did."""
    path = folder / COMMANDS
    if not path.exists():
        return []
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"Cannot read {path}: {error}. Delete it if it is damaged.") from error
