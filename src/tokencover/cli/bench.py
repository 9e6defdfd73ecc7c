"""``tokencover bench``: measured time, memory and FLOPs."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tokencover.cli.options import (
    OUTPUT,
    QUESTIONS,
    RUNNING,
    AsJson,
    BatchSize,
    Budgets,
    ImageFile,
    MethodNames,
    ModelArguments,
    Parallel,
    Threads,
    option,
    shared_options,
)
from tokencover.cli.values import (
    build_methods,
    is_silent,
    open_asked_image,
    parse_budgets,
    parse_output_file,
    parse_parallel,
    print_json,
    validate_questions,
)
from tokencover.errors import InputError
from tokencover.files import write_atomically
from tokencover.tables import TextTable, print_table

if TYPE_CHECKING:
    from tokencover.efficiency import Workload
    from tokencover.methods import Method


@shared_options()
def run_bench(
    source: ModelArguments,
    methods: MethodNames = "mob,fastv",
    budgets: Budgets = "64,192",
    image: ImageFile = None,
    question: Annotated[
        str | None, option("--question TEXT", "Question about the image.", QUESTIONS)
    ] = None,
    tokens_out: Annotated[
        int, option("--tokens-out N", "Tokens of an answer.", QUESTIONS, min=1)
    ] = 16,
    repeats: Annotated[int, option("--repeats N", "Number of timed runs.", RUNNING, min=1)] = 5,
    batch_size: BatchSize = 1,
    parallel: Parallel = "data",
    threads: Threads = None,
    out: Annotated[
        Path | None,
        option("--out FILE", "Also write the numbers as JSON.", OUTPUT, parser=parse_output_file),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure what pruning saves: time, memory, FLOPs."""
    from tokencover.cli.process import set_threads

    if question is not None:
        validate_questions([question])
    options = parse_parallel(parallel, device=source.device) | source.parse_options()
    built = build_methods(methods, parse_budgets(budgets))
    if not built:
        raise InputError("There is nothing to measure. Pass --methods mob and --budgets 64.")
    from tokencover.efficiency import build_workload, select_drawn_questions
    from tokencover.loading import load

    set_threads(threads)
    own = None if image is None else open_asked_image(image, question)
    model, processor = load(source.model, device=source.device, dtype=source.dtype, **options)
    if own is None or question is None:
        questions = select_drawn_questions(processor, batch_size, question)
    else:
        questions = [(own, question)] * batch_size
    workload = build_workload(source.model, model, processor, questions, options)
    table, data = _measure(workload, built, tokens_out, repeats, is_silent(parallel))
    if is_silent(parallel):
        return
    if as_json:
        print_json(data)
    else:
        print_table(table)
    if out is not None:
        write_atomically(out, json.dumps(data, indent=2) + "\n")


def _measure(
    workload: Workload, methods: Sequence[Method], tokens_out: int, repeats: int, silent: bool
) -> tuple[TextTable, Any]:
    from tokencover.efficiency import export_savings, measure_savings, tabulate_savings
    from tokencover.evaluation import Progress
    from tokencover.evaluation.progress import open_progress

    progress = Progress(io.StringIO(), repeats) if silent else open_progress(repeats)
    progress.begin("runs of all models")
    with closing(progress):
        savings = measure_savings(
            workload, methods, tokens_out=tokens_out, repeats=repeats, on_turn=progress.finish
        )
    return tabulate_savings(savings), export_savings(savings)
