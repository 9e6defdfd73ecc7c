"""``tokencover bench``: what pruning saves, measured; or the paper's table of costs."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tokencover.cli.options import (
    OUTPUT,
    QUESTIONS,
    RUNNING,
    Attention,
    BatchSize,
    Budgets,
    Device,
    Dtype,
    JsonInstead,
    MethodNames,
    ModelName,
    ModelOptions,
    Picture,
    Quantization,
    Threads,
    check_counts,
    check_questions,
    make_methods,
    print_json,
    read_budgets,
    read_model_options,
    read_new_file,
    read_whole_number,
    take,
)
from tokencover.cli.parallel import Parallel, is_silent, read_tensor_plan
from tokencover.errors import InputError
from tokencover.tables import TextTable, print_table

if TYPE_CHECKING:
    from tokencover.efficiency import Workload
    from tokencover.methods import Method


PaperInstead = Annotated[
    bool,
    take("--paper", "", "Print the paper's table of costs beside ours instead."),
]
OneQuestion = Annotated[
    str | None,
    take("--question", "TEXT", "What to ask about it.", QUESTIONS),
]
TokensOut = Annotated[
    int,
    take("--tokens-out", "N", "Length of an answer.", QUESTIONS, read=read_whole_number),
]
Repeats = Annotated[
    int,
    take("--repeats", "N", "Turns that count.", RUNNING, read=read_whole_number),
]
NumbersFile = Annotated[
    Path | None,
    take("--out", "FILE", "Write the numbers there too, as JSON.", OUTPUT, read=read_new_file),
]


def run_bench(
    paper: PaperInstead = False,
    model: ModelName = "pebble",
    dtype: Dtype = None,
    device: Device = None,
    quantization: Quantization = None,
    attention: Attention = None,
    model_options: ModelOptions = None,
    methods: MethodNames = "mob,fastv",
    budgets: Budgets = "64,192",
    image: Picture = None,
    question: OneQuestion = None,
    tokens_out: TokensOut = 16,
    repeats: Repeats = 5,
    batch_size: BatchSize = 1,
    parallel: Parallel = "data",
    threads: Threads = None,
    out: NumbersFile = None,
    as_json: JsonInstead = False,
) -> None:
    """Measure what pruning saves: time, memory, operations."""
    from tokencover.cli.threads import set_threads

    if paper:
        table, data = _compute_paper_costs()
    else:
        check_counts({"--batch-size": batch_size, "--tokens-out": tokens_out, "--repeats": repeats})
        if question is not None:
            check_questions([question])
        options = read_tensor_plan(parallel, device=device)
        options |= read_model_options(quantization, attention, model_options)
        wanted = make_methods(methods, read_budgets(budgets))
        if not wanted:
            raise InputError("there is nothing to measure: give --methods mob and --budgets 64.")
        set_threads(threads)
        workload = _make_workload(model, dtype, device, options, image, question, batch_size)
        table, data = _measure(workload, wanted, tokens_out, repeats, is_silent(parallel))
    if is_silent(parallel):
        return
    if as_json:
        print_json(data)
    else:
        print_table(table)
    if out is not None:
        from tokencover.files import write_atomically

        write_atomically(out, json.dumps(data, indent=2) + "\n")


def _compute_paper_costs() -> tuple[TextTable, Any]:
    from tokencover.efficiency import compute_paper_costs, export_paper_costs, tabulate_paper_costs

    costs = compute_paper_costs()
    return tabulate_paper_costs(costs), export_paper_costs(costs)


def _make_workload(
    name: str,
    dtype: str | None,
    device: str | None,
    options: Mapping[str, Any],
    image: Path | None,
    question: str | None,
    count: int,
) -> Workload:
    from tokencover.efficiency import make_workload, pick_drawn_questions, read_own_picture
    from tokencover.loading import load

    own = None if image is None else read_own_picture(image, question, count)
    model, processor = load(name, device=device, dtype=dtype, **options)
    questions = own or pick_drawn_questions(processor, count, question)
    return make_workload(name, model, processor, questions, options)


def _measure(
    workload: Workload, methods: Sequence[Method], tokens_out: int, repeats: int, silent: bool
) -> tuple[TextTable, Any]:
    from tokencover.efficiency import export_savings, measure_savings, tabulate_savings
    from tokencover.evaluation import Progress
    from tokencover.evaluation.progress import open_progress

    progress = Progress(io.StringIO(), repeats) if silent else open_progress(repeats)
    progress.begin("turns of all models")
    try:
        found = measure_savings(
            workload, methods, tokens_out=tokens_out, repeats=repeats, tell_turn=progress.finish
        )
    finally:
        progress.close()
    return tabulate_savings(found), export_savings(found)
