"""``tokencover evaluate``: what pruning costs and gains, method by method."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from tokencover.commands.options import (
    INTERRUPTED,
    METHODS,
    OUTPUT,
    RUNNING,
    AnswerLength,
    BatchSize,
    Budgets,
    Device,
    Dtype,
    KeepGoing,
    Limit,
    MethodNames,
    ModelName,
    Reference,
    SplitName,
    TaskNames,
    Threads,
    choose_from,
    name_reference,
    read_budgets,
    read_whole_number,
    split_at_commas,
    take,
)
from tokencover.errors import InputError
from tokencover.tables import print_markdown

if TYPE_CHECKING:
    from tokencover.evaluation import (
        AskingSettings,
        EvaluationPlan,
        Results,
        VisionLanguageModel,
        Work,
    )
    from tokencover.methods import Spec

BudgetModeName = Literal["exact", "layer_mean", "flops"]


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
ResultsFolder = Annotated[
    Path,
    take("--out", "FOLDER", "Folder of results.", OUTPUT),
]


def compare_methods(
    model: ModelName = "pebble",
    dtype: Dtype = None,
    device: Device = None,
    methods: MethodNames = "",
    method_json: MethodsAsJson = None,
    budgets: Budgets = "",
    budget_mode: BudgetModeChoice = "exact",
    reference: Reference = "mob",
    tasks: TaskNames = None,
    split: SplitName = "test",
    limit: Limit = None,
    max_new_tokens: AnswerLength = 16,
    batch_size: BatchSize = 16,
    timing_batches: TimingBatches = 3,
    keep_going: KeepGoing = False,
    shard: Shard = None,
    threads: Threads = None,
    out: ResultsFolder = Path("results"),
) -> None:
    """Compare methods on tasks: what pruning costs and gains."""
    import torch

    from tokencover.evaluation import (
        AskingSettings,
        EvaluationPlan,
        choose_benchmark,
        find_tasks,
        load_model,
        make_combinations,
    )
    from tokencover.methods import parse_methods

    specs = [*parse_methods(methods), *map(_read_json, method_json or [])]
    names = split_at_commas(choose_benchmark(model) if tasks is None else tasks)
    if not names:
        raise InputError("there is nothing to ask: give for example --tasks pebble.")
    if timing_batches < 0:
        raise InputError(f"--timing-batches must be 0 or more, got {timing_batches}.")
    plan = EvaluationPlan(
        make_combinations(specs, read_budgets(budgets), budget_mode),
        tuple(find_tasks(names, split=split, limit=limit)),
        timed=timing_batches > 0,
    )
    settings = AskingSettings(batch_size, max_new_tokens, keep_going)
    compared = name_reference(reference)
    part = read_shard(shard, os.environ)
    share = plan.share(*part)
    if threads is not None:
        torch.set_num_threads(threads)
    loaded = load_model(model, device=device, dtype=dtype)
    loaded.check(plan.tasks)
    results = do_unfinished(
        loaded, share, out, settings, split=split, limit=limit, timing_batches=timing_batches
    )
    _print_outcome(plan, results, compared, part)


def _print_outcome(
    plan: EvaluationPlan, results: Results, reference: str, part: tuple[int, int]
) -> None:
    """Print the table if everything is done, by whichever process."""
    from tokencover.evaluation import collect, is_complete, render

    if is_complete(plan, results):
        print_markdown(render(collect(plan, results), reference))
    else:
        print(
            f"part {part[0]} of {part[1]} is done, others are not: the last to finish prints the "
            "table, and so does this command without --shard."
        )


def do_unfinished(
    model: VisionLanguageModel,
    work: Sequence[Work],
    folder: Path,
    settings: AskingSettings,
    *,
    split: str,
    limit: int | None,
    timing_batches: int = 0,
) -> Results:
    """Do those units of work that a folder has no results of, and show how far it is.

    Parameters
    ----------
    model : VisionLanguageModel
        Not pruned.
    work : sequence of Work
        In this order.
    folder : Path
        Where the results are and go.
    settings : AskingSettings
        How to ask.
    split, limit : str, int
        Which examples the tasks were made of.
    timing_batches : int
        How many batches time a first token.
    """
    from tokencover.commands.progress_bar import open_progress
    from tokencover.evaluation import Results, describe_run, evaluate, find_unfinished

    described = describe_run(
        model,
        split=split,
        limit=limit,
        batch_size=settings.batch_size,
        max_new_tokens=settings.max_new_tokens,
    )
    results = Results.open(folder, described)
    left = find_unfinished(work, results)
    progress = open_progress(len(left))
    if len(left) < len(work):
        progress.note(f"{len(work) - len(left)} of {len(work)} are done already, going on")
    try:
        evaluate(model, left, results, settings, progress, timing_batches=timing_batches)
    except KeyboardInterrupt:
        progress.note("stopped; what is done is kept, and the same command goes on from there")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        progress.close()
    return results


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
    if text is None:
        return int(environment.get("RANK", "0")), int(environment.get("WORLD_SIZE", "1"))
    process, slash, processes = text.partition("/")
    if not (slash and process.isdecimal() and processes.isdecimal()):
        raise InputError(
            f"--shard takes a part and a number of parts, for example 0/2; got {text!r}."
        )
    return int(process), int(processes)
