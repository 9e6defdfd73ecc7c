"""Ctrl-C, wherever a command is: one line and exit code 130."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.loaded_process import LoadedProcess, wait_for_words

ROOT = Path(__file__).parents[2]
COLOR = ("--tasks", "pebble/color", "--limit", "1")

PROGRAM = """
import importlib, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
def wait(*args, **kwargs):
    print("at work", flush=True)
    time.sleep(60)
{change}
from tokencover.__main__ import start
start()
"""

IN_A_FUNCTION = """
place = importlib.import_module("tokencover.{module}")
place.{name} = wait
"""

IN_AN_IMPORT = """
class Waiting:
    def find_spec(name, *_):
        if name == "typer":
            wait()
sys.meta_path.insert(0, Waiting)
"""

TURNED_INTO_AN_ERROR = """
import tokencover.loading
def load(*_, **__):
    try:
        wait()
    except KeyboardInterrupt:
        raise ModuleNotFoundError("Could not import module 'LlamaConfig'.")
tokencover.loading.load = load
"""

IN_CODE_MADE_OF_TEXT = """
import tokencover.catalog
tokencover.catalog.read_methods = lambda: exec("wait()", {"wait": wait})
"""
"""As dataclasses do it: Python then ends by the signal, whatever exit code is asked for."""


@pytest.mark.parametrize(
    ("change", "arguments"),
    [
        (IN_A_FUNCTION.format(module="loading", name="load"), ["ask"]),
        (
            IN_A_FUNCTION.format(module="evaluation.comparison", name="do_work"),
            ["evaluate", *COLOR],
        ),
        (
            IN_A_FUNCTION.format(module="evaluation.calibration", name="_measure_coupling"),
            ["calibrate", "--limit", "1"],
        ),
        (TURNED_INTO_AN_ERROR, ["ask"]),
    ],
    ids=["loading", "evaluating", "calibrating", "an error"],
)
def test_stopping_says_so(
    loaded: LoadedProcess, change: str, arguments: list[str], tmp_path: Path
) -> None:
    program = PROGRAM.replace("{change}", change)
    number = loaded.start(program, *arguments, "--out", str(tmp_path / "out"), told=tmp_path)
    wait_for_words(tmp_path, "at work")
    os.kill(number, signal.SIGINT)
    assert loaded.wait() == 130
    check_words((tmp_path / "stderr").read_text())


def check_words(told: str) -> None:
    assert told.endswith("tokencover: stopped\n")
    assert "Traceback" not in told
    assert "LlamaConfig" not in told


@pytest.mark.parametrize(
    "change", [IN_AN_IMPORT, IN_CODE_MADE_OF_TEXT], ids=["importing", "made of text"]
)
def test_stopping_a_program_that_has_just_begun_says_so(change: str) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("{change}", change), "methods"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "at work\n"
    run.send_signal(signal.SIGINT)
    _, told = run.communicate(timeout=60)
    assert run.returncode == 130
    check_words(told)
