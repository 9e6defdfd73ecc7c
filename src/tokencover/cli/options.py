"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tokencover.errors import InputError

if TYPE_CHECKING:
    from tokencover.methods import Method

MODEL: Final = "Model"
QUESTIONS: Final = "Questions"
METHODS: Final = "Methods"
RUNNING: Final = "Running"
OUTPUT: Final = "Output"
OWN_OPTIONS: Final = {
    "attn_implementation": "--attention",
    "device": "--device",
    "dtype": "--dtype",
    "name": "--model",
    "quantization": "--quantization",
}
"""Arguments of `tokencover.loading.load` that are options of commands."""


def read_whole_number(text: str | int) -> int:
    """Read 16; a wrong value is told with the way out, which typer's own message does not."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no whole number, give for example 16.") from None


def read_limit(text: str | int) -> int:
    """Read 16; none at all would leave nothing to do."""
    number = read_whole_number(text)
    if number < 1:
        raise typer.BadParameter(f"{number} is too few: give 1 or more, or leave it out for all.")
    return number


def check_counts(counts: Mapping[str, int]) -> None:
    """Refuse options, by name, that count something and are below 1; before anything is loaded."""
    for name, count in counts.items():
        if count < 1:
            raise InputError(f"{name} must be at least 1, got {count}.")


def read_threads(text: str | int) -> int:
    """Read a number of threads that this machine can run."""
    number, most = read_whole_number(text), os.cpu_count() or 1
    if not 1 <= number <= most:
        raise typer.BadParameter(f"{number} is not from 1 to {most}, the cores of this machine.")
    return number


def read_number(text: str | float) -> float:
    """Read 0.5; a wrong value is told with the way out, as in `read_whole_number`."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no number, give for example 0.5.") from None


def read_path(text: str | Path) -> Path:
    """Read a path; an empty one would be the current folder."""
    if not str(text).strip():
        raise typer.BadParameter("the path is empty: give a name.")
    return Path(text)


def read_new_folder(text: str | Path) -> Path:
    """Read where a folder of output goes, which may exist."""
    path = read_path(text)
    for place in (path, *path.parents):
        if place.exists():
            if not place.is_dir():
                raise typer.BadParameter(f"{place} is a file: give a folder.")
            break
    return path


def read_new_file(text: str | Path) -> Path:
    """Read where a file of output goes; one that exists is replaced."""
    path = read_path(text)
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder: give a file.")
    read_new_folder(path.parent)
    return path


def take(
    name: str,
    value: str,
    about: str,
    panel: str | None = None,
    read: Callable[[str], Any] | None = None,
) -> Any:
    """Describe an option.

    Parameters
    ----------
    name : str
        With its dashes.
    value : str
        What its value is called in help; "" for one that takes none.
    about : str
        Its help.
    panel : str, optional
        The group in which it is listed.
    read : callable, optional
        Makes its value of text, or refuses it.
    """
    return typer.Option(name, metavar=value, help=about, rich_help_panel=panel, parser=read)


def choose_from(*choices: str) -> Callable[[str], str]:
    """Make a reader that takes one of some words."""

    def read_choice(text: str) -> str:
        if text not in choices:
            raise typer.BadParameter(f"{text!r} is none of {', '.join(choices)}.")
        return text

    return read_choice


ModelName = Annotated[
    str,
    take("--model", "NAME", "pebble, pebble-clips, boulder, a folder or a hub name.", MODEL),
]
Dtype = Annotated[
    str | None,
    take(
        "--dtype",
        "NAME",
        "Of the weights, for example bfloat16 (default: the checkpoint's).",
        MODEL,
    ),
]
Device = Annotated[
    str | None,
    take(
        "--device",
        "NAME",
        "cuda:1, cpu, or auto for all GPUs (default: one GPU, or else the CPU).",
        MODEL,
    ),
]
Quantization = Annotated[
    str | None,
    take(
        "--quantization",
        "4bit|8bit",
        "Quantize the weights with bitsandbytes.",
        MODEL,
        read=choose_from("4bit", "8bit"),
    ),
]
Attention = Annotated[
    str | None,
    take(
        "--attention",
        "NAME",
        "Attention implementation: sdpa, eager, flash_attention_2 (default: the model's).",
        MODEL,
    ),
]
ModelOptions = Annotated[
    str | None,
    take(
        "--model-options",
        "JSON",
        'Further options of from_pretrained, for example {"revision": "main"}.',
        MODEL,
    ),
]
TaskNames = Annotated[
    list[str] | None,
    take(
        "--tasks",
        "NAMES",
        "pebble, pebble-clips/when, files: see docs/evaluation.md (default: the model's own); "
        "with commas between, or several times.",
        QUESTIONS,
    ),
]
SplitName = Annotated[
    str,
    take("--split", "NAME", "Of pebble: test or validation.", QUESTIONS),
]
Limit = Annotated[
    int | None,
    take(
        "--limit",
        "N",
        "Scenes, clips, lines of a file (default: all).",
        QUESTIONS,
        read=read_limit,
    ),
]
AnswerLength = Annotated[
    int,
    take("--max-new-tokens", "N", "Length of an answer.", QUESTIONS, read=read_whole_number),
]
BatchSize = Annotated[
    int,
    take("--batch-size", "N", "Samples in one pass.", RUNNING, read=read_whole_number),
]
KeepGoing = Annotated[
    bool,
    take("--keep-going", "", "Count examples that fail.", RUNNING),
]
Threads = Annotated[
    int | None,
    take(
        "--threads", "N", "CPU threads (default: the cores that are free).", RUNNING, read_threads
    ),
]
MethodNames = Annotated[
    str,
    take(
        "--methods",
        "NAMES",
        "Names, with settings if need be: mob,fastv:after=3 (see `tokencover methods`).",
        METHODS,
    ),
]
Budgets = Annotated[
    str,
    take(
        "--budgets",
        "LIST",
        "Visual tokens to keep, or shares of them: 192,128,64 or 0.111.",
        METHODS,
    ),
]
Reference = Annotated[
    str | None,
    take(
        "--reference",
        "NAME",
        "The method that others are compared with: mob, or mob:after=2 (default: mob, or the "
        "first).",
        METHODS,
    ),
]
Picture = Annotated[
    Path | None,
    take(
        "--image",
        "FILE",
        "A picture (default: a scene or clip of pebble's test split).",
        QUESTIONS,
        read=read_path,
    ),
]


JsonInstead = Annotated[
    bool,
    take("--json", "", "Print JSON instead of a table.", OUTPUT),
]


def read_model_options(
    quantization: str | None, attention: str | None, model_options: str | None
) -> dict[str, Any]:
    """Read what `tokencover.loading.load` takes beside device and dtype; only what was given."""
    named = {"quantization": quantization, "attn_implementation": attention}
    found = {key: value for key, value in named.items() if value is not None}
    if model_options is None:
        return found
    try:
        others = json.loads(model_options)
    except json.JSONDecodeError as error:
        raise InputError(
            f"--model-options takes a JSON object, got {model_options!r}: {error}."
        ) from error
    if not isinstance(others, dict):
        raise InputError(
            f"--model-options takes a JSON object such as "
            f'\'{{"revision": "main"}}\', got {model_options!r}.'
        )
    for key, option in OWN_OPTIONS.items():
        if key in others:
            raise InputError(f"--model-options has {key!r}: give it as {option} instead.")
    return {**found, **others}


def print_json(document: object) -> None:
    """Print a document that a program reads."""
    print(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False))


def check_questions(questions: Sequence[str]) -> None:
    """Refuse questions that ask nothing."""
    for question in questions:
        if not question.strip():
            raise InputError("a question is empty: say what to ask, --question 'what is this ?'")


def split_at_commas(text: str) -> list[str]:
    """Cut at commas, and leave out what is empty."""
    return [part.strip() for part in text.split(",") if part.strip()]


def read_task_names(given: Sequence[str] | None) -> list[str] | None:
    """Read the values of --tasks; None if it was not given."""
    if given is None:
        return None
    names = [name for text in given for name in split_at_commas(text)]
    if not names:
        raise InputError("there is nothing to ask: give for example --tasks pebble.")
    return names


def read_budget(text: str, option: str = "--budget") -> int | float:
    """Read a count, or a share if it has a point."""
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise InputError(f"{option} takes a count (64) or a share (0.111), got {text!r}.") from None


def read_budgets(text: str) -> list[int | float]:
    """Read "64,0.111"; nothing at all is no budget."""
    parts = split_at_commas(text)
    if text and not parts:
        raise InputError(f"--budgets takes counts (64) or shares (0.111), got {text!r}.")
    return [read_budget(part, "--budgets") for part in parts]


def make_methods(text: str, budgets: Sequence[int | float], **settings: object) -> list[Method]:
    """Make every method that is named, ``mob,fastv:after=3``, at every budget.

    Parameters
    ----------
    text : str
        Names with settings, or JSON objects, with commas between.
    budgets : sequence of int or float
        Counts or shares; a method that names a budget of its own has that instead.
    **settings
        For all of them, where they do not say it themselves.
    """
    from tokencover.methods import make_method, parse_methods

    return [
        make_method(_complete(spec, {"budget": budget, **settings}))
        for spec in parse_methods(text)
        for budget in budgets
    ]


def name_reference(text: str) -> str:
    """Name a method with settings as results do; a bare name stands for all its settings."""
    from tokencover.methods import name_method

    if ":" not in text:
        return text
    named = make_methods(text, [1])
    if len(named) != 1:
        raise InputError(f"--reference takes one method, for example mob:after=2, got {text!r}.")
    return name_method(named[0], hidden=("budget", "budget_mode"))


def _complete(spec: Mapping[str, Any], settings: Mapping[str, object]) -> Mapping[str, Any]:
    """Add settings; those of a method that goes on top of another are for that other one."""
    if isinstance(spec.get("inner"), Mapping):
        return {**spec, "inner": _complete(spec["inner"], settings)}
    return {**settings, **spec}
