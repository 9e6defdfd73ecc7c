"""``tokencover serve``: an OpenAI-compatible server that keeps K tokens of each image."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from tokencover.cli.options import METHODS, RUNNING, option
from tokencover.cli.values import parse_budget, parse_path
from tokencover.errors import InputError

REQUESTS: Final = "Requests"
PASS_ON: Final = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Options that are not ours are vLLM's."""

ServedName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="pebble, local path, or Hugging Face Hub ID.", show_default=False
    ),
]
Budget = Annotated[
    str,
    option("--budget K", "Tokens to keep per image: a count (64) or fraction (0.111).", METHODS),
]
MethodName = Annotated[
    str,
    option("--method NAME", "Method with settings, e.g. mob, divprune, random:seed=1.", METHODS),
]
SplitRule = Annotated[
    str | None,
    option("--split NAME", "MoB's split: paper, strong, weak, balanced, coupling.", METHODS),
]
ProfileFile = Annotated[
    Path | None,
    option(
        "--profile FILE",
        "Output of `tokencover calibrate --after 0`, for --split coupling.",
        METHODS,
        parser=parse_path,
    ),
]
Positions = Annotated[
    Literal["original", "reindex"],
    option(
        "--positions NAME",
        "Positions of kept tokens: original, or reindex (without gaps).",
        METHODS,
    ),
]
ChooseBy = Annotated[
    Literal["question", "image"],
    option(
        "--choose-by NAME",
        "question, or image: one selection for all questions about an image.",
        METHODS,
    ),
]
ByRequest = Annotated[
    bool,
    option("--by-request", "Let requests set budget and method; implied by --ceiling.", REQUESTS),
]
Ceiling = Annotated[
    str | None,
    option("--ceiling K", "Largest budget that requests may set (default: --budget).", REQUESTS),
]
VisionCacheSize = Annotated[
    int,
    option(
        "--vision-cache-mb MB",
        "Cache size in MB for vision-encoder outputs; 0 disables the cache.",
        RUNNING,
    ),
]


def serve_model(
    context: typer.Context,
    model: ServedName,
    budget: Budget = "64",
    method: MethodName = "mob",
    split: SplitRule = None,
    profile: ProfileFile = None,
    positions: Positions = "original",
    choose_by: ChooseBy = "question",
    by_request: ByRequest = False,
    ceiling: Ceiling = None,
    vision_cache_mb: VisionCacheSize = 256,
    only_print: Annotated[
        bool, option("--print", "Print vLLM's command and exit.", RUNNING)
    ] = False,
) -> None:
    """Serve a model by vLLM with pruning; all other options are passed to vLLM."""
    if model.startswith("-"):
        raise InputError(f"Pass the model before options of vLLM, got {model!r} in its place.")
    from tokencover.bundled_models import MODELS, validate_installed
    from tokencover.loading import get_source
    from tokencover.serving import (
        build_server_command,
        run_server,
        validate_vllm,
    )

    validate_installed(model)
    settings: dict[str, Any] = {
        "budget": parse_budget(budget),
        "method": method,
        "positions": positions,
        "choose_by": choose_by,
        "vision_cache_mb": vision_cache_mb,
    }
    if split is not None:
        settings["split"] = split
    if profile is not None:
        settings["profile"] = str(profile.resolve())
    if ceiling is not None:
        settings["ceiling"] = parse_budget(ceiling, "--ceiling")
    source = str(get_source(model)) if model in MODELS else model
    by_request = by_request or ceiling is not None
    command = build_server_command(source, settings, by_request=by_request, more=context.args)
    if only_print:
        print(shlex.join(["python", *command[1:]]))
        return
    validate_vllm()
    raise typer.Exit(run_server(command))
