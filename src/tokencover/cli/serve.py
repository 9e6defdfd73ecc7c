"""``tokencover serve``: an OpenAI-compatible server whose model sees K tokens of each picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from tokencover.cli.options import (
    METHODS,
    RUNNING,
    choose_from,
    read_budget,
    read_path,
    read_whole_number,
    take,
)
from tokencover.errors import InputError

REQUESTS: Final = "Requests"

PASS_ON: Final = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Options that are not ours are vLLM's."""

ServedName = Annotated[
    str, typer.Argument(metavar="MODEL", help="pebble, a folder or a hub name.", show_default=False)
]
Budget = Annotated[
    str,
    take("--budget", "K", "Tokens of each picture to keep, or a share: 64 or 0.111.", METHODS),
]
OneMethod = Annotated[
    str,
    take("--method", "NAME", "With settings if need be: mob, divprune, random:seed=1.", METHODS),
]
SplitWord = Annotated[
    str | None,
    take("--split", "NAME", "MoB's: paper, strong, weak, balanced, coupling.", METHODS),
]
ProfileToRead = Annotated[
    Path | None,
    take(
        "--profile",
        "FILE",
        "For --split coupling: of `tokencover calibrate --after 0`.",
        METHODS,
        read=read_path,
    ),
]
PositionsOfKept = Annotated[
    str,
    take(
        "--positions",
        "NAME",
        "Of kept tokens: original, or reindex (without gaps).",
        METHODS,
        read=choose_from("original", "reindex"),
    ),
]
ChooseBy = Annotated[
    str,
    take(
        "--choose-by",
        "NAME",
        "question, or image: one choice for all questions about it.",
        METHODS,
        read=choose_from("question", "image"),
    ),
]
ByRequest = Annotated[
    bool,
    take("--by-request", "", "Let requests name budget and method; --ceiling does too.", REQUESTS),
]
Ceiling = Annotated[
    str | None,
    take("--ceiling", "K", "Largest budget that requests may name (default: --budget).", REQUESTS),
]
TowerMemorySize = Annotated[
    int,
    take(
        "--vision-cache-mb",
        "MB",
        "For pictures that are asked about again; 0 for none.",
        RUNNING,
        read=read_whole_number,
    ),
]
OnlyPrint = Annotated[bool, take("--print", "", "Print vLLM's command and end.", RUNNING)]


def serve_model(
    context: typer.Context,
    model: ServedName,
    budget: Budget = "64",
    method: OneMethod = "mob",
    split: SplitWord = None,
    profile: ProfileToRead = None,
    positions: PositionsOfKept = "original",
    choose_by: ChooseBy = "question",
    by_request: ByRequest = False,
    ceiling: Ceiling = None,
    tower_memory: TowerMemorySize = 256,
    only_print: OnlyPrint = False,
) -> None:
    """Serve a model by vLLM with pruning; options that are not listed here are vLLM's own."""
    if model.startswith("-"):
        raise InputError(f"say the model before options of vLLM's, got {model!r} in its place.")
    from tokencover.bundled_models import MODELS, validate_installed
    from tokencover.loading import get_source
    from tokencover.serving import build_server_command, run_server, validate_vllm, write_command

    validate_installed(model)
    settings: dict[str, Any] = {
        "budget": read_budget(budget),
        "method": method,
        "positions": positions,
        "choose_by": choose_by,
        "vision_cache_mb": tower_memory,
    }
    if split is not None:
        settings["split"] = split
    if profile is not None:
        settings["profile"] = str(profile.resolve())
    if ceiling is not None:
        settings["ceiling"] = read_budget(ceiling, "--ceiling")
    source = str(get_source(model)) if model in MODELS else model
    # A largest budget of requests would mean nothing if they could name none.
    by_request = by_request or ceiling is not None
    command = build_server_command(source, settings, by_request=by_request, more=context.args)
    if only_print:
        print(write_command(command))
        return
    validate_vllm()
    raise typer.Exit(run_server(command))
