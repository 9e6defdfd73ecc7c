"""Options of commands that ask benchmarks of lmms-eval."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from tokencover.commands.options import (
    QUESTIONS,
    choose_from,
    read_whole_number,
    split_at_commas,
    take,
)
from tokencover.errors import InputError

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


def choose_task_names(model: str, tasks: str | None, suite: str | None) -> list[str]:
    """The tasks of a suite and those that are named; the model's own by default."""
    from tokencover.evaluation import choose_benchmark
    from tokencover.evaluation.lmms import name_suite

    names = [] if suite is None else name_suite(suite)
    if tasks is not None or suite is None:
        names += split_at_commas(choose_benchmark(model) if tasks is None else tasks)
    if not names:
        raise InputError("there is nothing to ask: give for example --tasks pebble.")
    return names
