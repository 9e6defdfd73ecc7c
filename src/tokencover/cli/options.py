"""Options that several commands share, each defined once.

Options of every command that loads a model, and of every command that evaluates tasks, are fields
of a dataclass: `shared_options` gives such a command one parameter per field.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_type_hints

import typer

from tokencover.cli.values import parse_object, parse_path, parse_task_names
from tokencover.errors import InputError

if TYPE_CHECKING:
    from tokencover.evaluation.lmms import ShowingSettings

MODEL: Final = "Model"
QUESTIONS: Final = "Questions"
METHODS: Final = "Methods"
RUNNING: Final = "Running"
OUTPUT: Final = "Output"
LOAD_ARGUMENTS: Final = {
    "attn_implementation": "--attention",
    "device": "--device",
    "dtype": "--dtype",
    "name": "--model",
    "quantization": "--quantization",
}
"""Arguments of `tokencover.loading.load` that have their own options."""
SuiteName = Literal["paper", "paper-images", "paper-video", "paper-strong", "paper-weak"]
SUITE_NAMES: Final = get_args(SuiteName)
PromptScopeName = Literal["question", "turn"]
OWN_BENCHMARKS: Final = "lmms:tokencover_pebble"
"""Prefix of the lmms-eval tasks with our scenes."""


def option(name: str, text: str, panel: str | None = None, **more: Any) -> Any:
    """Define an option: ``--name`` of a flag or ``--name VALUE``, and its help."""
    name, _, value = name.partition(" ")
    return typer.Option(name, metavar=value, help=text, rich_help_panel=panel, **more)


def shared_options(**defaults: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace parameters that are dataclasses of options by one parameter per field, for typer.

    `defaults` replace those of the fields.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
        parameters = []
        for name, parameter in inspect.signature(command).parameters.items():
            if name in groups:
                options = get_type_hints(groups[name], include_extras=True)
                parameters += [
                    each.replace(
                        annotation=options[each.name],
                        default=defaults.get(each.name, each.default),
                    )
                    for each in inspect.signature(groups[name]).parameters.values()
                ]
            else:
                parameters.append(parameter.replace(annotation=hints[name]))

        def run(**values: Any) -> None:
            for name, group in groups.items():
                values[name] = group(**{each.name: values.pop(each.name) for each in fields(group)})
            command(**values)

        run.__doc__ = command.__doc__
        keyword_only = [each.replace(kind=each.KEYWORD_ONLY) for each in parameters]
        run.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
        return run

    return decorate


@dataclass(frozen=True)
class ModelArguments:
    """The options of every command that loads a model."""

    model: Annotated[
        str,
        option(
            "--model NAME",
            "Bundled model (pebble, pebble-clips, boulder), local path, or Hugging Face Hub ID.",
            MODEL,
        ),
    ] = "pebble"
    dtype: Annotated[
        str | None,
        option(
            "--dtype NAME", "Weight dtype, e.g. bfloat16 (default: from the checkpoint).", MODEL
        ),
    ] = None
    device: Annotated[
        str | None,
        option(
            "--device NAME",
            "cuda:1, cpu, or auto for all GPUs (default: one GPU, else the CPU).",
            MODEL,
        ),
    ] = None
    quantization: Annotated[
        Literal["4bit", "8bit"] | None,
        option("--quantization 4bit|8bit", "Quantize the weights with bitsandbytes.", MODEL),
    ] = None
    attention: Annotated[
        str | None,
        option(
            "--attention NAME",
            "Attention implementation: sdpa, eager, flash_attention_2 (default: the model's).",
            MODEL,
        ),
    ] = None
    model_options: Annotated[
        str | None,
        option(
            "--model-options JSON",
            'Further options of from_pretrained, e.g. {"revision": "main"}.',
            MODEL,
        ),
    ] = None

    def parse_options(self) -> dict[str, Any]:
        """Return the arguments of `tokencover.loading.load` besides device and dtype."""
        named = {"quantization": self.quantization, "attn_implementation": self.attention}
        options: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
        if self.model_options is None:
            return options
        more = parse_object(self.model_options, "--model-options", '{"revision": "main"}')
        for key, own_option in LOAD_ARGUMENTS.items():
            if key in more:
                raise InputError(
                    f"--model-options contains {key!r}. Pass it as {own_option} instead."
                )
        return {**options, **more}

    def warn_about_images(self, tasks: Sequence[str] | None = None) -> None:
        """Warn if a bundled model is used on images other than the scenes it was trained on.

        Without `tasks`, it is used on an image of the user.
        """
        from tokencover.bundled_models import MODELS, list_scene_sets

        is_foreign = tasks is None or any(
            each.partition("/")[0] not in list_scene_sets() and not each.startswith(OWN_BENCHMARKS)
            for each in tasks
        )
        if self.model in MODELS and is_foreign:
            print(
                f"tokencover: {self.model} was trained on scenes that tokencover draws, and its "
                "answers about other images are guesses. Choose another --model for them.",
                file=sys.stderr,
            )


TaskNames = Annotated[
    list[str] | None,
    option(
        "--tasks NAMES",
        "Tasks or data files, e.g. pebble, pebble-clips/when, mine.jsonl (default: the model's "
        "own). Comma-separated, or repeat the option.",
        QUESTIONS,
    ),
]
SplitName = Annotated[
    str, option("--split NAME", "Split of pebble's scenes: test or validation.", QUESTIONS)
]
Limit = Annotated[
    int | None,
    option(
        "--limit N",
        "Maximum number of scenes, videos or file rows per task (default: all).",
        QUESTIONS,
        min=1,
    ),
]


@dataclass(frozen=True)
class TaskArguments:
    """The options of every command that evaluates tasks."""

    tasks: TaskNames = None
    suite: Annotated[
        SuiteName | None,
        option(
            "--suite NAME",
            f"The paper's benchmarks by lmms-eval: {', '.join(SUITE_NAMES)}.",
            QUESTIONS,
        ),
    ] = None
    split: SplitName = "test"
    limit: Limit = None
    prompt_scope: Annotated[
        PromptScopeName,
        option(
            "--prompt-scope question|turn",
            "Text used as the prompt in lmms-eval tasks: the question only, or the full user turn.",
            QUESTIONS,
        ),
    ] = "question"
    pad: Annotated[
        bool,
        option("--pad", "Pad images of lmms-eval tasks to squares, as LLaVA does.", QUESTIONS),
    ] = False
    frames: Annotated[
        int, option("--frames N", "Frames per video in lmms-eval tasks.", QUESTIONS)
    ] = 8
    max_new_tokens: Annotated[
        int, option("--max-new-tokens N", "Maximum tokens of an answer.", QUESTIONS)
    ] = 16

    @property
    def showing(self) -> ShowingSettings:
        """How lmms-eval tasks are shown."""
        from tokencover.evaluation.lmms import ShowingSettings

        return ShowingSettings(self.prompt_scope, self.pad, self.frames)

    def resolve_names(self, model: str) -> list[str]:
        """Return the tasks of the suite and the named ones; by default the model's own.

        A suite is limited to the media that the model takes, with a message. Everything is checked
        before anything but the model's processor is downloaded.
        """
        from tokencover.bundled_models import get_default_tasks

        names = [] if self.suite is None else _resolve_suite(self.suite, model)
        named = parse_task_names(self.tasks)
        if named is None and self.suite is None:
            named = [get_default_tasks(model)]
        if named is not None:
            _validate_media(named, model)
            names += named
        return names


def _validate_media(names: list[str], model: str) -> None:
    """Raise an error for the paper's benchmarks with media that the model does not take."""
    from tokencover.evaluation.lmms import PAPER_BENCHMARKS, check_packages
    from tokencover.loading import load_processor
    from tokencover.prompting import check_kinds

    benchmarks = [each for each in PAPER_BENCHMARKS if each.full_name in names]
    if benchmarks:
        check_packages()
        processor = load_processor(model)
        for each in benchmarks:
            check_kinds(
                processor, {each.shows}, f"{each.full_name} cannot be evaluated on {model!r}"
            )


def _resolve_suite(suite: str, model: str) -> list[str]:
    """Return the tasks of a suite with media that the model takes."""
    from tokencover.evaluation.lmms import PAPER_BENCHMARKS, check_packages, name_suite
    from tokencover.loading import load_processor
    from tokencover.prompting import check_kinds, list_kinds

    check_packages()
    processor = load_processor(model)
    names, supported = name_suite(suite), name_suite(suite, list_kinds(processor))
    skipped = [each for each in PAPER_BENCHMARKS if each.full_name in set(names) - set(supported)]
    if not supported:
        media = {each.shows for each in skipped}
        check_kinds(processor, media, f"--suite {suite} cannot be evaluated on {model!r}")
    if skipped:
        listed = ", ".join(each.name for each in skipped)
        print(f"skipped, since {model} takes no {skipped[0].shows}s: {listed}", file=sys.stderr)
    return supported


BatchSize = Annotated[int, option("--batch-size N", "Samples per forward pass.", RUNNING, min=1)]
KeepGoing = Annotated[
    bool,
    option("--keep-going", "Record failed examples and continue instead of stopping.", RUNNING),
]
Shard = Annotated[str | None, option("--shard I/N", "Run part I of N, from 0.", RUNNING)]
Parallel = Annotated[
    Literal["data", "tensor"],
    option(
        "--parallel data|tensor",
        "Under torchrun, split the examples or the model's weights over the processes.",
        RUNNING,
    ),
]
Threads = Annotated[
    int | None,
    option(
        "--threads N", "CPU threads (default: the idle cores).", RUNNING, min=1, max=os.cpu_count()
    ),
]
MethodNames = Annotated[
    str,
    option(
        "--methods NAMES",
        "Comma-separated methods, with optional settings, e.g. mob,fastv:after=3.",
        METHODS,
    ),
]
Budgets = Annotated[
    str,
    option(
        "--budgets LIST",
        "Comma-separated budgets: visual tokens to keep (64) or fractions of them (0.111).",
        METHODS,
    ),
]
Reference = Annotated[
    str | None,
    option(
        "--reference NAME",
        "Method that others are compared with, e.g. mob:after=2 (default: mob, or the first).",
        METHODS,
    ),
]
ImageFile = Annotated[
    Path | None,
    option(
        "--image FILE",
        "Image file (default: a scene or video of pebble's test split).",
        QUESTIONS,
        parser=parse_path,
    ),
]
AsJson = Annotated[bool, option("--json", "Print JSON instead of a table.", OUTPUT)]
