"""The command line, as a person uses it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from PIL import Image

import tokencover as tc
from tokencover.budget import BudgetMode
from tokencover.cli.app import main
from tokencover.cli.evaluate import BudgetModeName
from tokencover.visualization import MARGIN
from tokencover_models.pebble.data import make_clip_examples


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["ask", "--help"], ["serve", "-h"]])
def test_help_is_plain_in_a_pipe(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Usage: tokencover")
    assert printed.isascii()
    assert "\x1b" not in printed


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"{tc.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Usage: tokencover [OPTIONS] COMMAND"),
        (["asky"], "No such command 'asky'"),
        (["ask", "--colour", "red"], "No such option: --colour"),
        (["ask", "--scene", "first"], "Invalid value for '--scene'"),
        (["ablate"], "Missing option '--what'"),
        (["ablate", "--what", "all"], "'all' is not one of 'k-prompt', 'fold', 'layer'"),
        (["ablate", "--what", "fold", "--prompt-fraction", "half"], "'--prompt-fraction': "),
        (["evaluate", "--budget-mode", "some"], "'some' is not one of 'exact', 'layer_mean'"),
        (["bench", "--batch-size", "0"], "Invalid value for '--batch-size'"),
        (["bench", "--repeats", "0", "--model", "./no/such"], "Invalid value for '--repeats'"),
        (["bench", "--tokens-out", "0"], "Invalid value for '--tokens-out'"),
        (["evaluate", "--batch-size", "0"], "Invalid value for '--batch-size'"),
        (["judge", "x", "--url", "u", "--model", "m", "--parallel", "0"], "'--parallel': "),
        (["report"], "Missing argument 'RESULTS'"),
    ],
)
def test_a_wrong_call_ends_with_two(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.out + printed.err


def test_budget_modes_are_those_there_are() -> None:
    assert get_args(BudgetModeName) == get_args(BudgetMode)


def test_python_runs_it_as_a_module() -> None:
    command = [sys.executable, "-m", "tokencover", "--version"]
    end = subprocess.run(command, capture_output=True, text=True, check=True)
    assert end.stdout == f"{tc.__version__}\n"


def test_models_lists_every_class_supported_ones_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["models"]) == 0
    supported, refused = capsys.readouterr().out.split("refused ", 1)
    assert "qwen2_vl" in supported
    assert "llava_next" in supported
    assert "gemma3" in supported
    assert "by value" in supported
    assert "mllama" not in supported
    lines = {line.split()[0]: line for line in refused.splitlines() if line}
    assert "cross-attention" in lines["mllama"]


def test_ask_takes_any_method(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["ask", "--method", "visionzip", "--question", "which place is this ?"]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    assert "64 of 576" in capsys.readouterr().out
    assert (tmp_path / "kept-1.png").is_file()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--method", "fastv:after=3"],
        ["--method", "fastv", "--after", "3"],
        ["--method", '{"method": "fastv", "after": 3}'],
        ["--method", "final_wipe:inner=mob"],
    ],
)
def test_ask_takes_settings(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["ask", "--question", "which place is this ?", "--out", str(tmp_path)]
    assert main([*asked, *arguments]) == 0
    assert "of 576" in capsys.readouterr().out


def test_ask_answers_with_and_without_pruning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ask", "--out", str(tmp_path), "--budget", "64"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("64 of 576") == 6
    assert printed.count("by word: ") == 6
    with Image.open(tmp_path / "kept-6.png") as drawn:
        assert drawn.width == 768 + 2 * MARGIN
        assert drawn.height > 768
    assert (tmp_path / "picture.png").is_file()


def test_ask_takes_a_picture_and_a_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "mine.png"
    Image.new("RGB", (300, 200), "navy").save(picture)
    question = "which place is this ?"
    arguments = ["ask", "--image", str(picture), "--question", question, "--budget", "0.5"]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    assert "288 of 576" in capsys.readouterr().out


def test_ask_shows_a_clip_to_the_model_for_clips(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["ask", "--model", "pebble-clips", "--question", "when is the cat seen ?"]
    assert main([*arguments, "--scene", "1", "--budget", "136", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "136 of 1160" in printed
    assert str(tmp_path / "clip.png") in printed
    frames = list(make_clip_examples("test", 2, ["place"]))[1].frames
    with Image.open(tmp_path / "clip.png") as strip:
        first = strip.crop((0, 0, *frames[0].size))
        last = strip.crop((strip.width - 96, 0, strip.width, 96))
        assert first.tobytes() == frames[0].tobytes()
        assert last.tobytes() == frames[7].tobytes()
    with Image.open(tmp_path / "kept-1.png") as drawn:
        assert drawn.width > 4 * 300


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ask", "--budget", "many"], "--budget must be a count"),
        (["ask", "--budget", "0"], "at least 1 token, got 0"),
        (["ask", "--after", "99"], "after=99"),
        (["ask", "--method", "mob:later=2"], "mob has no setting later"),
        (["ask", "--method", "mob,fastv"], "--method must be one method"),
        (["ask", "--method", ""], "--method must be one method"),
        (["ask", "--image", "nowhere.png", "--question", "what ?"], "nowhere.png"),
        (["ask", "--scene", "-1"], "got -1"),
    ],
)
def test_mistakes_are_explained(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err


def test_a_picture_needs_a_question(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "mine.png"
    Image.new("RGB", (30, 20)).save(picture)
    assert main(["ask", "--image", str(picture), "--out", str(tmp_path)]) == 2
    assert "--question" in capsys.readouterr().err


def test_the_model_for_clips_takes_no_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "mine.png"
    Image.new("RGB", (30, 20)).save(picture)
    arguments = ["ask", "--model", "pebble-clips", "--image", str(picture), "--question", "what ?"]
    assert main([*arguments, "--out", str(tmp_path)]) == 2
    assert "takes no images" in capsys.readouterr().err
