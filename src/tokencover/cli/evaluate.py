"""``tokencover evaluate``: what pruning costs and gains, method by method."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from tokencover.cli.benchmark_options import (
    FrameCount,
    Pad,
    PromptWordsChoice,
    SuiteName,
    choose_task_names,
)
from tokencover.cli.command_line import write_command_line
from tokencover.cli.model_family import warn_about_images
from tokencover.cli.options import (
    METHODS,
    OUTPUT,
    RUNNING,
    AnswerLength,
    Attention,
    BatchSize,
    Budgets,
    Device,
    Dtype,
    JsonInstead,
    KeepGoing,
    Limit,
    MethodNames,
    ModelName,
    ModelOptions,
    Quantization,
    Reference,
    SplitName,
    TaskNames,
    Threads,
    choose_from,
    name_reference,
    print_json,
    read_budgets,
    read_model_options,
    read_new_folder,
    read_whole_number,
    take,
)
from tokencover.cli.parallel import (
    Parallel,
    is_silent,
    read_tensor_plan,
)
from tokencover.errors import InputError
from tokencover.tables import print_table

if TYPE_CHECKING:
    from tokencover.evaluation import Progress, Results, VisionLanguageModel
    from tokencover.methods import Spec

BudgetModeName = Literal["exact", "layer_mean", "flops", "published"]


MethodsAsJson = Annotated[
    list[str] | None,
    take(
        "--method-json",
        "JSON",
        'A method as JSON, {"method": "fastv", "after": 3}, which --methods takes too; '
        "may be given several times.",
        METHODS,
    ),
]
BudgetModeChoice = Annotated[
    BudgetModeName,
    take(
        "--budget-mode",
        "|".join(get_args(BudgetModeName)),
        "What budgets count.",
        METHODS,
        read=choose_from(*get_args(BudgetModeName)),
    ),
]
TimingBatches = Annotated[
    int,
    take(
        "--timing-batches",
        "N",
        "Batches to time first tokens with; 0 for none.",
        RUNNING,
        read=read_whole_number,
    ),
]
Shard = Annotated[
    str | None,
    take("--shard", "I/N", "Do the I-th of N parts, counted from 0.", RUNNING),
]
ResultsPlace = Annotated[
    Path,
    take("--out", "FOLDER", "Folder of results.", OUTPUT, read=read_new_folder),
]


def compare_methods(
    context: typer.Context,
    model: ModelName = "pebble",
    dtype: Dtype = None,
    device: Device = None,
    quantization: Quantization = None,
    attention: Attention = None,
    model_options: ModelOptions = None,
    methods: MethodNames = "",
    method_json: MethodsAsJson = None,
    budgets: Budgets = "",
    budget_mode: BudgetModeChoice = "exact",
    reference: Reference = None,
    tasks: TaskNames = None,
    suite: SuiteName = None,
    split: SplitName = "test",
    limit: Limit = None,
    prompt_words: PromptWordsChoice = "question",
    pad: Pad = False,
    frames: FrameCount = 8,
    max_new_tokens: AnswerLength = 16,
    batch_size: BatchSize = 16,
    timing_batches: TimingBatches = 3,
    keep_going: KeepGoing = False,
    shard: Shard = None,
    parallel: Parallel = "data",
    threads: Threads = None,
    out: ResultsPlace = Path("results"),
    as_json: JsonInstead = False,
) -> None:
    """Compare methods on tasks: what pruning costs and gains."""
    shares, options = read_budgets(budgets), read_tensor_plan(parallel, shard=shard, device=device)
    part = (0, 1) if options else read_shard(shard, os.environ)
    options |= read_model_options(quantization, attention, model_options)
    hidden = ("shard", "model_options") if "token" in options else ("shard",)  # never store it

    from tokencover.cli.threads import set_threads
    from tokencover.evaluation import evaluate
    from tokencover.evaluation.lmms import ShowingSettings
    from tokencover.methods import parse_methods

    names = choose_task_names(model, tasks, suite)
    set_threads(threads)
    results = evaluate(
        # Once everything is checked.
        partial(_load_model, model, () if is_silent(parallel) else names, device, dtype, options),
        methods=[*parse_methods(methods), *map(_read_json, method_json or [])],
        budgets=shares,
        tasks=names,
        split=split,
        limit=limit,
        budget_mode=budget_mode,
        reference=None if reference is None else name_reference(reference),
        batch_size=batch_size,
        max_new_tokens=max_new_tokens,
        keep_going=keep_going,
        timing_batches=timing_batches,
        out=out,
        part=part,
        progress=partial(_begin, out, write_command_line(context, hidden=hidden)),
        showing=ShowingSettings(prompt_words, pad, frames),
    )
    if not is_silent(parallel):
        _print_results(results, part, as_json)


def _begin(folder: Path, command: str, units: int) -> Progress:
    """Called once the folder is known to hold results of the same run."""
    from tokencover.evaluation import record_command
    from tokencover.evaluation.progress import open_progress

    record_command(folder, command)
    return open_progress(units)


def _print_results(results: Results, part: tuple[int, int], as_json: bool) -> None:
    from tokencover.evaluation import list_warnings, render

    if as_json:
        print_json({"run": results.run, "reference": results.reference, "rows": results.to_dicts()})
    elif results.finished:
        print_table(render(results.rows, results.reference))
    else:
        print(tell_part(part))
    for warning in list_warnings(results.rows):
        typer.secho(f"WARNING: {warning}", err=True, fg="red", bold=True)


def _load_model(
    name: str,
    tasks: Sequence[str],
    device: str | None,
    dtype: str | None,
    options: Mapping[str, Any],
) -> VisionLanguageModel:
    from tokencover.evaluation import load_model

    loaded = load_model(name, device=device, dtype=dtype, **options)
    warn_about_images(name, tasks)
    return loaded


def tell_part(part: tuple[int, int]) -> str:
    """What a process says that is not the last one to finish."""
    return (
        f"part {part[0]} of {part[1]} is done, others are not: the last to finish prints the "
        "table, and so does this command without --shard."
    )


def _read_json(text: str) -> Spec:
    try:
        spec = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"--method-json takes a JSON object, got {text!r}: {error}.") from error
    if not isinstance(spec, dict) or not isinstance(spec.get("method"), str):
        raise InputError(f'--method-json takes an object with a "method" name, got {text!r}.')
    return spec


def read_shard(text: str | None, environment: Mapping[str, str]) -> tuple[int, int]:
    """Which part of how many; torchrun and ``accelerate launch`` tell it by the environment."""
    from tokencover.evaluation import check_part

    if text is None:
        return int(environment.get("RANK", "0")), int(environment.get("WORLD_SIZE", "1"))
    process, slash, processes = text.partition("/")
    if not (slash and process.isdecimal() and processes.isdecimal()):
        raise InputError(
            f"--shard takes a part and a number of parts, for example 0/2; got {text!r}."
        )
    part = int(process), int(processes)
    check_part(*part)
    return part
