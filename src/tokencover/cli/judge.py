"""``tokencover judge``: open answers, scored by a language model."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tokencover.cli.options import (
    OUTPUT,
    RUNNING,
    JsonInstead,
    Reference,
    check_counts,
    name_reference,
    print_json,
    read_new_folder,
    read_number,
    read_path,
    read_task_names,
    read_whole_number,
    take,
)
from tokencover.cli.stopping import INTERRUPTED
from tokencover.tables import print_table

AnsweredResults = Annotated[
    Path,
    typer.Argument(
        metavar="RESULTS",
        help="The --out of `tokencover evaluate`, with videos.",
        parser=read_path,
    ),
]
JudgeAddress = Annotated[
    str, take("--url", "URL", "An OpenAI-compatible server, for example http://host:8000/v1.")
]
JudgeModel = Annotated[str, take("--model", "NAME", "The server's model that judges.")]
JudgedTasks = Annotated[
    list[str] | None,
    take("--tasks", "NAMES", "Which ones, TGIF,MSVD (default: all that have open answers)."),
]
KeyVariable = Annotated[
    str,
    take("--key-variable", "NAME", "The environment variable that holds the key, if any."),
]
Parallel = Annotated[
    int,
    take("--parallel", "N", "Answers judged at a time.", RUNNING, read=read_whole_number),
]
ReplyTokens = Annotated[
    int,
    take(
        "--reply-tokens",
        "N",
        "Length of a reply; a model that thinks first needs many.",
        RUNNING,
        read=read_whole_number,
    ),
]
Timeout = Annotated[
    float,
    take("--timeout", "SECONDS", "How long to wait for a reply.", RUNNING, read=read_number),
]
JudgedFolder = Annotated[
    Path | None,
    take(
        "--out",
        "FOLDER",
        "Judged results (default: RESULTS-judged-by-MODEL).",
        OUTPUT,
        read=read_new_folder,
    ),
]


def judge_answers(
    results: AnsweredResults,
    url: JudgeAddress,
    model: JudgeModel,
    tasks: JudgedTasks = None,
    key_variable: KeyVariable = "OPENAI_API_KEY",
    parallel: Parallel = 8,
    reply_tokens: ReplyTokens = 1024,
    timeout: Timeout = 120.0,
    reference: Reference = None,
    out: JudgedFolder = None,
    as_json: JsonInstead = False,
) -> None:
    """Let a language model judge answers about videos."""
    from tokencover.evaluation import (
        Judge,
        count_unreadable,
        judge_results,
        read_folder,
        render,
        resolve_reference,
    )

    check_counts({"--parallel": parallel})
    judge = Judge(
        url,
        model,
        os.environ.get(key_variable, ""),
        patience=timeout,
        longest_reply=reply_tokens,
    )
    name = "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in model)
    folder = out or results.with_name(f"{results.name}-judged-by-{name}")
    named = None if reference is None else name_reference(reference)
    try:
        judge_results(
            results,
            folder,
            judge,
            tasks=read_task_names(tasks) or (),
            parallel=parallel,
            advance=_Counter().tell,
        )
    except KeyboardInterrupt:
        print("stopped; what is judged is kept, and the same command goes on", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    judged = read_folder(folder)
    compared = resolve_reference([row.combination for row in judged], named)
    unreadable = count_unreadable(judged)
    if unreadable:
        print(
            f"{unreadable} replies of the judge cannot be read: these answers count as failed, and "
            "the same command asks for them again (--reply-tokens if they are cut off)",
            file=sys.stderr,
        )
    if as_json:
        print_json({"run": judged.run, "reference": compared, "rows": judged.to_dicts()})
    else:
        print_table(render(judged.rows, compared))
        print(f"judged by {model}: wrote {folder}, which `tokencover report` reads")


class _Counter:
    """Tells on standard error how far the judge is, each time a tenth is done."""

    def __init__(self) -> None:
        self._told = -1

    def tell(self, done: int, every: int) -> None:
        tenth = 10 * done // every if every else 10
        if tenth > self._told:
            self._told = tenth
            print(f"{done} of {every} answers are judged", file=sys.stderr)
