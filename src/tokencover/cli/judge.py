"""``tokencover judge``: open answers, scored by a language model."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tokencover.cli.options import OUTPUT, RUNNING, AsJson, Reference, option
from tokencover.cli.process import INTERRUPTED
from tokencover.cli.values import (
    name_reference,
    parse_output_folder,
    parse_path,
    parse_task_names,
    print_json,
)
from tokencover.tables import print_table

ReplyTokens = Annotated[
    int,
    option("--reply-tokens N", "Maximum tokens of a reply; reasoning models need many.", RUNNING),
]
JudgedFolder = Annotated[
    Path | None,
    option(
        "--out FOLDER",
        "Folder for judged results (default: RESULTS-judged-by-MODEL).",
        OUTPUT,
        parser=parse_output_folder,
    ),
]


def judge_answers(
    results: Annotated[
        Path,
        typer.Argument(
            metavar="RESULTS",
            help="Output of `tokencover evaluate` with video tasks.",
            parser=parse_path,
        ),
    ],
    url: Annotated[str, option("--url URL", "OpenAI-compatible server, e.g. http://host:8000/v1.")],
    model: Annotated[str, option("--model NAME", "Judge model on that server.")],
    tasks: Annotated[
        list[str] | None,
        option("--tasks NAMES", "Tasks, e.g. TGIF,MSVD (default: all with open answers)."),
    ] = None,
    key_variable: Annotated[
        str, option("--key-variable NAME", "Environment variable with the API key, if any.")
    ] = "OPENAI_API_KEY",
    parallel: Annotated[
        int, option("--parallel N", "Number of parallel requests.", RUNNING, min=1)
    ] = 8,
    reply_tokens: ReplyTokens = 1024,
    timeout: Annotated[
        float, option("--timeout SECONDS", "Timeout of a request in seconds.", RUNNING)
    ] = 120.0,
    reference: Reference = None,
    out: JudgedFolder = None,
    as_json: AsJson = False,
) -> None:
    """Score open answers about videos by a language model."""
    from tokencover.evaluation import (
        Judge,
        count_unreadable,
        judge_results,
        read_folder,
        render,
        resolve_reference,
    )

    key = os.environ.get(key_variable, "")
    judge = Judge(url, model, key, patience=timeout, longest_reply=reply_tokens)
    name = "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in model)
    folder = out or results.with_name(f"{results.name}-judged-by-{name}")
    names, advance = parse_task_names(tasks) or (), _TenthPrinter().advance
    try:
        judge_results(results, folder, judge, tasks=names, parallel=parallel, advance=advance)
    except KeyboardInterrupt:
        print("stopped; judged answers are kept, and the same command resumes", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    judged = read_folder(folder)
    compared = resolve_reference([row.combination for row in judged], name_reference(reference))
    unreadable = count_unreadable(judged)
    if unreadable:
        print(
            f"{unreadable} replies of the judge could not be parsed: these answers count as "
            "failed, and the same command requests them again (raise --reply-tokens if they are "
            "truncated)",
            file=sys.stderr,
        )
    if as_json:
        print_json({"run": judged.run, "reference": compared, "rows": judged.to_dicts()})
    else:
        print_table(render(judged.rows, compared))
        print(f"judged by {model}: wrote {folder}, which `tokencover report` reads")


class _TenthPrinter:
    """Prints the progress to standard error after every tenth."""

    def __init__(self) -> None:
        self._printed = -1

    def advance(self, done: int, total: int) -> None:
        tenth = 10 * done // total if total else 10
        if tenth > self._printed:
            self._printed = tenth
            print(f"{done} of {total} answers are judged", file=sys.stderr)
