"""``tokencover evaluate``: accuracy and cost of methods on tasks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from tokencover.cli.options import (
    METHODS,
    OUTPUT,
    RUNNING,
    AsJson,
    BatchSize,
    Budgets,
    KeepGoing,
    MethodNames,
    ModelArguments,
    Parallel,
    Reference,
    Shard,
    TaskArguments,
    Threads,
    option,
    shared_options,
)
from tokencover.cli.values import (
    format_command_line,
    is_silent,
    name_reference,
    parse_budgets,
    parse_object,
    parse_output_folder,
    parse_parallel,
    parse_shard,
    print_json,
)
from tokencover.errors import InputError
from tokencover.tables import print_table

if TYPE_CHECKING:
    from tokencover.evaluation import Progress, Results, VisionLanguageModel
    from tokencover.methods import Spec

BudgetModeName = Literal["exact", "layer_mean", "flops", "published"]

MethodsAsJson = Annotated[
    list[str] | None,
    option(
        "--method-json JSON",
        'Method as JSON, e.g. {"method": "fastv", "after": 3}; repeat the option for several.',
        METHODS,
    ),
]
BudgetMode = Annotated[
    BudgetModeName,
    option(f"--budget-mode {'|'.join(get_args(BudgetModeName))}", "What budgets count.", METHODS),
]
TimingBatches = Annotated[
    int,
    option("--timing-batches N", "Batches used to measure TTFT; 0 disables timing.", RUNNING),
]
ResultsFolder = Annotated[
    Path, option("--out FOLDER", "Folder for results.", OUTPUT, parser=parse_output_folder)
]


@shared_options()
def evaluate_methods(
    context: typer.Context,
    source: ModelArguments,
    *,
    methods: MethodNames = "",
    method_json: MethodsAsJson = None,
    budgets: Budgets = "",
    budget_mode: BudgetMode = "exact",
    reference: Reference = None,
    questions: TaskArguments,
    batch_size: BatchSize = 16,
    timing_batches: TimingBatches = 3,
    keep_going: KeepGoing = False,
    shard: Shard = None,
    parallel: Parallel = "data",
    threads: Threads = None,
    out: ResultsFolder = Path("results"),
    as_json: AsJson = False,
) -> None:
    """Evaluate pruning methods on tasks: accuracy, FLOPs and time."""
    parsed_budgets = parse_budgets(budgets)
    options = parse_parallel(parallel, shard=shard, device=source.device)
    part = (0, 1) if options else parse_shard(shard, os.environ)
    options |= source.parse_options()
    hidden = ("shard", "model_options") if "token" in options else ("shard",)  # never store it

    from tokencover.cli.process import set_threads
    from tokencover.evaluation import evaluate
    from tokencover.methods import parse_methods

    names = questions.resolve_names(source.model)
    set_threads(threads)
    results = evaluate(
        # Called once everything is checked.
        partial(_load_model, source, () if is_silent(parallel) else names, options),
        methods=[*parse_methods(methods), *map(_parse_method, method_json or [])],
        budgets=parsed_budgets,
        tasks=names,
        split=questions.split,
        limit=questions.limit,
        budget_mode=budget_mode,
        reference=name_reference(reference),
        batch_size=batch_size,
        max_new_tokens=questions.max_new_tokens,
        keep_going=keep_going,
        timing_batches=timing_batches,
        out=out,
        part=part,
        progress=partial(_begin, out, format_command_line(context, hidden=hidden)),
        showing=questions.showing,
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
        print(describe_part(part))
    for warning in list_warnings(results.rows):
        typer.secho(f"WARNING: {warning}", err=True, fg="red", bold=True)


def _load_model(
    source: ModelArguments, tasks: Sequence[str], options: dict[str, Any]
) -> VisionLanguageModel:
    from tokencover.evaluation import load_model

    model = load_model(source.model, device=source.device, dtype=source.dtype, **options)
    source.warn_about_images(tasks)
    return model


def describe_part(part: tuple[int, int]) -> str:
    """Describe a finished part of a run whose other parts are not finished."""
    return (
        f"part {part[0]} of {part[1]} is done, other parts are not. The last one to finish prints "
        "the table, and so does this command without --shard."
    )


def _parse_method(text: str) -> Spec:
    spec = parse_object(text, "--method-json", '{"method": "mob"}')
    if not isinstance(spec.get("method"), str):
        raise InputError(f'--method-json must be an object with a "method" name, got {text!r}.')
    return spec
