"""``tokencover evaluate``: what pruning costs and gains, method by method."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import torch

from tokencover.budget import BudgetMode
from tokencover.commands.options import add_model_options, budgets, parts
from tokencover.errors import InputError
from tokencover.evaluation import (
    AskingSettings,
    EvaluationPlan,
    Progress,
    Results,
    choose_benchmark,
    collect,
    describe_run,
    evaluate,
    find_tasks,
    find_unfinished,
    is_complete,
    load_model,
    make_combinations,
    render,
)
from tokencover.methods import Spec

INTERRUPTED = 130
"""Exit code of a command that was stopped by Ctrl-C, as shells have it."""


def add_parser(commands: Any) -> None:
    """Add the command to those of ``tokencover``."""
    parser = commands.add_parser(
        "evaluate", help="compare methods on tasks", description=__doc__, allow_abbrev=False
    )
    add_model_options(parser)
    parser.add_argument("--methods", default="", help="names, mob,fastv say: `tokencover methods`")
    parser.add_argument(
        "--method-json",
        action="append",
        default=[],
        metavar="JSON",
        help='a method with settings, {"method": "fastv", "after": 3}; may be given several times',
    )
    parser.add_argument("--budgets", default="", help="tokens or shares: 192,128,64 or 0.111")
    parser.add_argument(
        "--budget-mode", choices=get_args(BudgetMode), default="exact", help="what budgets count"
    )
    parser.add_argument(
        "--tasks", help="pebble, pebble-clips/when, files: see docs (default: the model's own)"
    )
    parser.add_argument("--split", default="test", help="of pebble: test or validation")
    parser.add_argument("--limit", type=int, help="scenes, clips, lines of a file (default: all)")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--max-new-tokens", type=int, default=16, help="length of an answer")
    parser.add_argument(
        "--timing-batches", type=int, default=3, help="to time first tokens with; 0 for none"
    )
    parser.add_argument("--reference", default="mob", help="who is compared with (default: mob)")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of results")
    parser.add_argument("--keep-going", action="store_true", help="count examples that fail")
    parser.add_argument("--shard", metavar="I/N", help="do the I-th of N parts, counted from 0")
    parser.add_argument("--threads", type=int, help="CPU threads (default: torch decides)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Evaluate with the options of the command, and print a table if everything is done."""
    plan = _plan(options)
    settings = AskingSettings(options.batch_size, options.max_new_tokens, options.keep_going)
    process, processes = _shard(options.shard, os.environ)
    share = plan.share(process, processes)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    model = load_model(options.model, device=options.device, dtype=options.dtype)
    model.check(plan.tasks)
    described = describe_run(
        model,
        split=options.split,
        limit=options.limit,
        batch_size=options.batch_size,
        max_new_tokens=options.max_new_tokens,
    )
    results = Results.open(options.out, described)
    work = find_unfinished(share, results)
    progress = Progress(sys.stderr, len(work))
    if len(work) < len(share):
        progress.note(f"{len(share) - len(work)} of {len(share)} are done already, going on")
    try:
        evaluate(model, work, results, settings, progress, timing_batches=options.timing_batches)
    except KeyboardInterrupt:
        progress.note("stopped; what is done is kept, and the same command goes on from there")
        sys.exit(INTERRUPTED)
    finally:
        progress.close()
    if is_complete(plan, results):
        print(render(collect(plan, results), options.reference))
    else:
        print(
            f"part {process} of {processes} is done, others are not: the last to finish prints the "
            "table, and so does this command without --shard."
        )


def _plan(options: argparse.Namespace) -> EvaluationPlan:
    specs: list[Spec] = [{"method": name} for name in parts(options.methods)]
    specs += [_spec(text) for text in options.method_json]
    wanted = budgets(options.budgets)
    names = parts(choose_benchmark(options.model) if options.tasks is None else options.tasks)
    if not names:
        raise InputError("there is nothing to ask: give --tasks pebble, say.")
    if options.timing_batches < 0:
        raise InputError(f"--timing-batches must be 0 or more, got {options.timing_batches}.")
    tasks = find_tasks(names, split=options.split, limit=options.limit)
    made = make_combinations(specs, wanted, options.budget_mode)
    return EvaluationPlan(made, tuple(tasks), timed=options.timing_batches > 0)


def _spec(text: str) -> Spec:
    try:
        spec: Spec = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"--method-json takes a JSON object, got {text!r}: {error}.") from error
    return spec


def _shard(text: str | None, environment: Mapping[str, str]) -> tuple[int, int]:
    """Which part of how many; torchrun and ``accelerate launch`` tell it by the environment."""
    if text is None:
        return int(environment.get("RANK", "0")), int(environment.get("WORLD_SIZE", "1"))
    process, slash, processes = text.partition("/")
    if not (slash and process.isdecimal() and processes.isdecimal()):
        raise InputError(f"--shard takes a part and a number of parts, 0/2 say; got {text!r}.")
    return int(process), int(processes)
