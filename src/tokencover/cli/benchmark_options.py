"""Options of commands that ask benchmarks of lmms-eval."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Final, Literal

from tokencover.cli.options import (
    QUESTIONS,
    choose_from,
    read_task_names,
    read_whole_number,
    take,
)

SUITE_NAMES: Final = ("paper", "paper-images", "paper-video", "paper-strong", "paper-weak")
PromptWordsName = Literal["question", "turn"]

SuiteName = Annotated[
    str | None,
    take(
        "--suite",
        "NAME",
        "The paper's benchmarks by lmms-eval: paper, paper-images, paper-video, paper-strong, "
        "paper-weak.",
        QUESTIONS,
        read=choose_from(*SUITE_NAMES),
    ),
]
PromptWordsChoice = Annotated[
    PromptWordsName,
    take(
        "--prompt-words",
        "question|turn",
        "Of lmms-eval's tasks methods read the question alone, or all that is asked.",
        QUESTIONS,
        read=choose_from("question", "turn"),
    ),
]
Pad = Annotated[
    bool,
    take("--pad", "", "Pad pictures of lmms-eval's tasks to squares, as LLaVA does.", QUESTIONS),
]
FrameCount = Annotated[
    int,
    take(
        "--frames",
        "N",
        "Frames of a video of lmms-eval's tasks.",
        QUESTIONS,
        read=read_whole_number,
    ),
]


def choose_task_names(model: str, tasks: Sequence[str] | None, suite: str | None) -> list[str]:
    """The tasks of a suite and those that are named; the model's own by default.

    A suite is asked as far as the model takes what it shows, and what is left out is told. All this
    is before anything is downloaded but the model's processor.
    """
    from tokencover.bundled_models import get_default_tasks

    names = [] if suite is None else _name_suite(suite, model)
    named = read_task_names(tasks)
    if named is None and suite is None:
        named = [get_default_tasks(model)]
    if named is not None:
        _check_kinds_of(named, model)
        names += named
    return names


def _check_kinds_of(names: list[str], model: str) -> None:
    """Refuse the paper's benchmarks of what the model does not take, before it is loaded."""
    from tokencover.evaluation.lmms import PAPER_BENCHMARKS, check_packages
    from tokencover.loading import load_processor
    from tokencover.prompting import check_kinds

    asked = [each for each in PAPER_BENCHMARKS if each.full_name in names]
    if asked:
        check_packages()
        processor = load_processor(model)
        for each in asked:
            told = f"{each.full_name} cannot be asked of {model!r}"
            check_kinds(processor, {each.shows}, told)


def _name_suite(suite: str, model: str) -> list[str]:
    """Those tasks of a suite that show what the model takes."""
    from tokencover.evaluation.lmms import PAPER_BENCHMARKS, check_packages, name_suite
    from tokencover.loading import load_processor
    from tokencover.prompting import check_kinds, list_kinds

    check_packages()
    processor = load_processor(model)
    names, taken = name_suite(suite), name_suite(suite, list_kinds(processor))
    out = [each for each in PAPER_BENCHMARKS if each.full_name in set(names) - set(taken)]
    if not taken:
        shown = {each.shows for each in out}
        check_kinds(processor, shown, f"--suite {suite} cannot be asked of {model!r}")
    if out:
        told = ", ".join(each.name for each in out)
        print(f"left out, since {model} takes no {out[0].shows}s: {told}", file=sys.stderr)
    return taken
