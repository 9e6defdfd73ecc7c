"""Values of options: parsed and validated, with errors that name a valid value."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tokencover.errors import InputError

if TYPE_CHECKING:
    from PIL import Image

    from tokencover.methods import Method


def parse_path(text: str | Path) -> Path:
    """Parse a path; an empty one would be the current folder."""
    if not str(text).strip():
        raise typer.BadParameter("the path is empty.")
    return Path(text)


def parse_output_folder(text: str | Path) -> Path:
    """Parse the path of a folder for output, which may exist."""
    path = parse_path(text)
    existing = next((each for each in (path, *path.parents) if each.exists()), None)
    if existing is not None and not existing.is_dir():
        raise typer.BadParameter(f"{existing} is a file, pass a folder.")
    return path


def parse_output_file(text: str | Path) -> Path:
    """Parse the path of a file for output; an existing file is replaced."""
    path = parse_path(text)
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder, pass a file.")
    parse_output_folder(path.parent)
    return path


def validate_questions(questions: Sequence[str]) -> None:
    """Raise an error for an empty question."""
    if any(not question.strip() for question in questions):
        raise InputError("A question is empty. Ask for example --question 'what is this ?'")


def open_asked_image(path: Path, question: object) -> Image.Image:
    """Open the user's image; raise an error without a question about it."""
    from tokencover.images import open_image

    if not question:
        raise InputError("Ask a question about your image: --question 'what is this ?'")
    return open_image(path)


def split_at_commas(text: str) -> list[str]:
    """Split at commas, without empty parts."""
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_task_names(values: Sequence[str] | None) -> list[str] | None:
    """Parse the values of --tasks, None if it was not passed."""
    if values is None:
        return None
    names = [name for text in values for name in split_at_commas(text)]
    if not names:
        raise InputError("--tasks is empty. Pass for example --tasks pebble.")
    return names


def parse_budget(text: str, option: str = "--budget") -> int | float:
    """Parse a count, or a fraction if it has a decimal point."""
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise InputError(
            f"{option} must be a count (64) or a fraction (0.111), got {text!r}."
        ) from None


def parse_budgets(text: str) -> list[int | float]:
    """Parse "64,0.111"; empty text is no budget."""
    parts = split_at_commas(text)
    if text and not parts:
        raise InputError(f"--budgets must be counts (64) or fractions (0.111), got {text!r}.")
    return [parse_budget(part, "--budgets") for part in parts]


def parse_object(text: str, option: str, example: str) -> dict[str, Any]:
    """Parse a JSON object."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{option} must be a JSON object, got {text!r}: {error}.") from error
    if not isinstance(found, dict):
        raise InputError(f"{option} must be a JSON object such as '{example}', got {text!r}.")
    return found


def parse_parallel(parallel: str, **options: object) -> dict[str, Any]:
    """Return the arguments of `tokencover.loading.load` that split a model over processes.

    Raises an error for `options` that --parallel tensor does not support, unless they are None.
    """
    if parallel == "data":
        return {}
    if "RANK" not in os.environ:
        raise InputError(
            "--parallel tensor needs processes that torchrun starts: run torchrun "
            "--nproc-per-node 2 -m tokencover ... --parallel tensor."
        )
    for name, value in options.items():
        if value is not None:
            raise InputError(
                f"--{name} {value} cannot be combined with --parallel tensor, which runs every "
                f"example on all processes and assigns their devices. Omit --{name}."
            )
    return {"tp_plan": "auto"}


def is_silent(parallel: str) -> bool:
    """Whether another process of --parallel tensor prints and writes the results."""
    return parallel == "tensor" and os.environ.get("RANK") != "0"


def parse_shard(text: str | None, environment: Mapping[str, str]) -> tuple[int, int]:
    """Return the part to run and the number of parts; torchrun and accelerate set variables."""
    from tokencover.evaluation import check_part

    if text is None:
        return int(environment.get("RANK", "0")), int(environment.get("WORLD_SIZE", "1"))
    part, slash, parts = text.partition("/")
    if not (slash and part.isdecimal() and parts.isdecimal()):
        raise InputError(f"--shard must be a part and a number of parts, e.g. 0/2, got {text!r}.")
    shard = int(part), int(parts)
    check_part(*shard)
    return shard


def build_methods(text: str, budgets: Sequence[int | float], **settings: object) -> list[Method]:
    """Build all methods, ``mob,fastv:after=3`` or JSON objects, at all budgets.

    Budgets and settings are defaults of methods that do not set them.
    """
    from tokencover.methods import make_method, parse_methods

    return [
        make_method(_complete(spec, {"budget": budget, **settings}))
        for spec in parse_methods(text)
        for budget in budgets
    ]


def _complete(spec: Mapping[str, Any], settings: Mapping[str, object]) -> Mapping[str, Any]:
    """Add settings; those of a method that wraps another one are for the inner method."""
    if isinstance(spec.get("inner"), Mapping):
        return {**spec, "inner": _complete(spec["inner"], settings)}
    return {**settings, **spec}


def name_reference(text: str | None) -> str | None:
    """Return a method with settings as results name it; a bare name means all its settings."""
    from tokencover.methods import name_method

    if text is None or ":" not in text:
        return text
    methods = build_methods(text, [1])
    if len(methods) != 1:
        raise InputError(f"--reference must be one method, e.g. mob:after=2, got {text!r}.")
    return name_method(methods[0], hidden=("budget", "budget_mode"))


def print_json(document: object) -> None:
    """Print a document for programs."""
    print(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False))


def format_command_line(context: typer.Context, *, hidden: Sequence[str] = ()) -> str:
    """Format what the user passed, in the order of the command's options, without `hidden`."""
    words = context.command_path.split()
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and name not in hidden:
            words += _list_words(parameter, context.params[name])
    return shlex.join(words)


def _list_words(parameter: Any, value: Any) -> Iterator[str]:
    for each in value if isinstance(value, list | tuple) else [value]:
        if parameter.param_type_name == "option":
            yield parameter.opts[0]
        if not isinstance(each, bool):
            yield str(each)
