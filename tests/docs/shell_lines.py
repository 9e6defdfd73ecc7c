"""What becomes of a line of a shell block in a test: less work of the same kind, or a reason."""

from __future__ import annotations

import runpy
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

from tests.docs.pages import ROOT
from tokencover.cli.app import main

DRAWN = ("kept", "trade-off")
"""An image and the chart; the remaining figures are drawn by the same functions."""
LITTLE = ("--limit", "1", "--max-new-tokens", "1")
LESS = {
    "python -m research.paper.costs": (),
    "tokencover ask": (),
    "tokencover methods": (),
    "tokencover models": (),
    "tokencover bench": (
        "--repeats", "1", "--tokens-out", "1", "--budgets", "0.5",
        "--methods", "mob", "--batch-size", "1",
    ),
    "tokencover evaluate": (*LITTLE, "--timing-batches", "0", "--budgets", "64"),
    "tokencover ablate": (*LITTLE, "--budgets", "64", "--values", "0,1"),
    "tokencover calibrate": ("--limit", "1"),
    "tokencover report": ("--format", "svg"),
    "python benchmarks/accelerator.py": ("--rows", "1"),
    "python -m research.study.pebble_accuracy": ("--scenes", "1"),
    "python -m research.study.pebble_class_token": ("--scenes", "1"),
    "python -m research.study.pebble_pruning": (
        "--scenes", "1", "--budgets", "32", "--methods", "mob", "random",
    ),
    "python benchmarks/prefill.py": (
        "--width", "128", "--blocks", "3", "--repeats", "1", "--tokens", "576", "--batches", "1",
        "--after", "1", "--budgets", "64",
    ),
    "python benchmarks/selection.py": ("--tokens", "128", "--repeats", "1", "--no-memory"),
    "python -m research.theory.counterexample": ("--steps", "6", "--samples", "5"),
    "python -m research.theory.predictions": ("--scenes", "2", "--budgets", "32"),
    "python -m research.twig.pebble": ("--steps", "1", "--pictures", "1"),
    "python tools/draw_pictures.py": ("--only", *DRAWN, "--out", "images"),
}  # fmt: skip
"""What is put behind the options of a line, where the last one counts."""
BOULDER_STEPS = ("projector", "train", "curve", "publish", "measure")
OF_THE_SYSTEM = ("mkdir", "tar")
LEFT_OUT = {
    "git": "needs the network",
    "cd": "enters a clone that is not made here",
    "pip": "takes packages from an index; the README's is run by tools/try_wheel.py",
    "make": "builds environments; CI calls these targets",
    "tokencover serve": "needs vLLM, as tests_vllm has it",
    "vllm": "needs vLLM, as tests_vllm has it",
    "tokencover studio": "waits for visitors, as in tests_browser",
    "tokencover judge": "needs a server with a language model; tests/evaluation has a small one",
    "python -m research.pebble_training": "trains for hours; research/tests does a few steps",
    "python -m research.beyond.run": "registers methods of its own; research/tests tries these",
    "python -m research.theory.pebble": "takes a minute; tests/theory certifies such covers",
    "--suite": "needs lmms-eval, as tests_lmms has it",
    **dict.fromkeys(
        ("first", "llava", "video-judged-by-Qwen_Qwen3-32B"),
        "shows what lmms-eval's tasks gave, as tests_lmms has it",
    ),
    **dict.fromkeys(
        (f"research.boulder_training.{step}" for step in BOULDER_STEPS),
        "trains for hours, or asks for minutes; models/tests tries the shipped model",
    ),
    "python -m research.study.run": "takes hours; research/tests runs a small study",
    "python -m research.study.tables": "takes a minute; research/tests reads a small study",
    "--growth": "takes minutes",
    "--quantization": "needs bitsandbytes; tests_quantized runs it",
    "torchrun": "starts several processes; tests_parallel does",
    "--time": "needs an accelerator",
}
"""Programs and options that are not run here, and why; their options are checked all the same."""
ONCE = ("tokencover bench", "python benchmarks/selection.py", "python benchmarks/prefill.py",
        "python benchmarks/accelerator.py", "python -m research.study.pebble_accuracy")  # fmt: skip
WRITTEN = ("--out", "--json", "--markdown", "--latex", "--csv", "--figures", "--export", "--growth")
"""Options that name what is written."""


def get_program(words: list[str]) -> str:
    """The program and its subcommand, script or module."""
    return " ".join(words[: 3 if words[:2] == ["python", "-m"] else 2])


def get_skip_reason(words: list[str], before: list[list[str]]) -> str | None:
    """Why a line is not run here, where those `before` were; None if it is."""
    names = (words[0], get_program(words), *words)
    if names[1] in ONCE and names[1] in [get_program(each) for each in before]:
        return "the first line of it was run, and others would measure the same again"
    return next((LEFT_OUT[name] for name in names if name in LEFT_OUT), None)


def shorten_line(words: list[str]) -> list[str]:
    """The same line with less to do."""
    name = get_program(words)
    less = LESS[name]
    own_data = any(word.endswith(".jsonl") for word in words)
    if name in ("tokencover evaluate", "tokencover ablate") and not own_data:
        clips = "pebble-clips" in words
        tasks = "pebble-clips/when" if clips else "pebble/color"
        if "--tasks" in words:  # given twice, both would be evaluated
            place = words.index("--tasks") + 1
            words = [*words[:place], tasks, *words[place + 1 :]]
        else:
            less = (*less, "--tasks", tasks)
    return [*words, *less]


def run_line(words: list[str]) -> str:
    """Do it in this process, where torch is loaded already; what went wrong, or nothing."""
    if words[0] in OF_THE_SYSTEM:
        subprocess.run(words, check=True)
        return ""
    words = shorten_line(words)
    if words[0] == "tokencover":
        code = main(words[1:])
        if code:
            return f"ended with {code}"
    elif words[1] == "-m":
        with patch.object(sys, "argv", words[2:]):
            runpy.run_module(words[2], run_name="__main__", alter_sys=True)
    else:
        script = ROOT / words[1]
        paths = [str(script.parent), *sys.path]
        with patch.object(sys, "argv", words[1:]), patch.object(sys, "path", paths):
            runpy.run_path(str(script), run_name="__main__")
    named = [Path(value) for key, value in pairwise(words) if key in WRITTEN]
    missing = [str(path) for path in named if not path.exists() and not str(path).startswith("-")]
    return f"did not write {missing}" if missing else ""
