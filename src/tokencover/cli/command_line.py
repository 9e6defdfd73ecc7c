"""Rebuild the command line of the running command from its options. Not a command itself."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import typer


def write_command_line(context: typer.Context, *, hidden: Sequence[str] = ()) -> str:
    """Write what the user gave, in the order of the command's options.

    Parameters
    ----------
    context : typer.Context
        The command that runs.
    hidden : sequence of str
        Names of parameters to leave out.
    """
    words = context.command_path.split()
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and name not in hidden:
            words += _list_words(parameter, context.params[name])
    return shlex.join(words)


def _list_words(parameter: Any, value: Any) -> Iterator[str]:
    """The words of one option or argument."""
    for each in value if isinstance(value, list | tuple) else [value]:
        if parameter.param_type_name == "option":
            yield parameter.opts[0]
        if not isinstance(each, bool):
            yield str(each)
