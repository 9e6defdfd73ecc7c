"""Exit codes: 2 for wrong usage, 1 for failures; and that empty paths are wrong usage."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.evaluation.made_results import open_folder, write
from tokencover import loading
from tokencover.cli.app import main
from tokencover_models.pebble import PICTURE_CHECKPOINT

ROOT = Path(__file__).parents[2]
COLOR = ("--tasks", "pebble/color", "--limit", "1", "--threads", "1")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder of results with one task."""
    folder = tmp_path / "results"
    opened = open_folder(folder)
    write(opened, None, {"GQA": [1, 0, 1]})
    return folder


@pytest.mark.parametrize(
    "command",
    [
        "ask --out", "evaluate --out", "ablate --what fold --out", "calibrate --out",
        "bench --out", "judge x --url http://x --model m --out", "report x --out",
        "report x --csv", "report x --latex", "report x --markdown", "report x --export",
        "report x --figures", "report x --against", "report x --ablation", "report x --profile",
        "report", "ask --question x --image", "bench --image",
    ],
)  # fmt: skip
@pytest.mark.parametrize("text", ["", " "])
def test_empty_path_is_wrong_usage(
    command: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main([*command.split(), text]) == 2
    assert "the path is empty." in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("ask --out {file}", "is a file, pass a folder"),
        ("ablate --what fold --out {file}", "is a file, pass a folder"),
        ("evaluate --out {file}/below", "is a file, pass a folder"),
        ("judge x --url http://x --model m --out {file}", "is a file, pass a folder"),
        ("report x --figures {file}", "is a file, pass a folder"),
        ("bench --out {folder}", "is a folder, pass a file"),
        ("calibrate --out {folder}", "is a folder, pass a file"),
        ("report x --out {folder}", "is a folder, pass a file"),
        ("report x --csv {file}/rows.csv", "is a file, pass a folder"),
    ],
)
def test_output_in_the_wrong_place_is_wrong_usage(
    command: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("precious")
    given = command.format(file=tmp_path / "file", folder=tmp_path)
    assert main(given.split()) == 2
    assert message in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "precious"


def test_missing_files_and_unknown_names_are_wrong_usage(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases: list[tuple[list[str | Path], str]] = [
        (["report", "nowhere"], "there is no folder nowhere"),
        (["report", results, "--profile", "nowhere.json"], "nowhere.json"),
        (["evaluate", "--tasks", "nowhere.jsonl"], "there is no task 'nowhere.jsonl'"),
        (["evaluate", *COLOR, "--budgets", "64"], "but no methods: give some"),
        (["bench", "--methods", ""], "There is nothing to measure"),
        (["bench", "--budgets", ""], "There is nothing to measure"),
        (["ask", "--model", ""], "the model name is empty"),
        (["judge", results, "--url", "http://x", "--model", ""], "the judge has no name"),
    ]
    for arguments, message in cases:
        assert main([str(each) for each in arguments]) == 2
        assert message in capsys.readouterr().err


def test_layers_that_the_model_does_not_have_are_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--what", "layer", "--values", "1,11", *COLOR, "--out", str(tmp_path / "out")]
    assert main(["ablate", *options]) == 2
    assert (
        "--values contains layer 11, but this model prunes after 0 to 10" in capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()


def test_damaged_results_are_a_failure(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = results.glob("scores-*.json")
    path.write_text(path.read_text()[:100])
    assert main(["report", str(results), "--csv", str(tmp_path / "rows.csv")]) == 1
    assert f"{path} is damaged" in capsys.readouterr().err
    assert not (tmp_path / "rows.csv").exists()
    (results / "run.json").write_text("{")
    judge = ["judge", str(results), "--url", "http://x", "--model", "m"]
    assert main(judge) == 1
    assert f"{results / 'run.json'} is damaged" in capsys.readouterr().err


def test_a_damaged_unit_is_a_failure_for_a_judge(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = results.glob("scores-*.json")
    for text in ("{", "{}"):
        path.write_text(text)
        assert main(["judge", str(results), "--url", "http://x", "--model", "m"]) == 1
        assert f"{path} is damaged" in capsys.readouterr().err


def test_a_missing_extra_is_a_failure(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["report", str(results), "--out", str(results.parent / "page.html")]) == 1
    assert "writing pages needs jinja2, which is not installed" in capsys.readouterr().err


def test_a_hub_that_cannot_be_reached_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(host: str, *_: object) -> None:
        raise OSError("no such host")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    for name in loading.PROXIES:
        monkeypatch.delenv(name, raising=False)
    assert main(["ask", "--model", "owner/model", "--out", str(tmp_path)]) == 1
    assert main(["methods", "--model", "owner/model"]) == 1
    assert capsys.readouterr().err.count("cannot be reached") == 2


@pytest.mark.parametrize(
    ("name", "damage", "code"),
    [
        ("model.safetensors", b"\xff" * 100, 1),
        ("model.safetensors", None, 1),
        ("config.json", b"{", 1),
        ("config.json", b'{"model_type": "gpt2"}', 2),
        ("config.json", None, 2),
    ],
)
def test_a_damaged_model_is_a_failure_and_a_wrong_one_wrong_usage(
    name: str,
    damage: bytes | None,
    code: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(PICTURE_CHECKPOINT, folder)
    path = folder / name
    path.unlink() if damage is None else path.write_bytes(damage)
    assert main(["ask", "--model", str(folder), "--out", str(tmp_path / "out")]) == code
    assert f"the model {str(folder)!r} cannot be loaded" in capsys.readouterr().err


def run_in_shell(line: str) -> subprocess.CompletedProcess[str]:
    command = f"{sys.executable} -m tokencover {line}"
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT
    )


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("--version >&-", 0),
        ("methods >&- 2>&-", 0),
        ("methods --nothing >&-", 2),
        ("methods nothing >&-", 2),
        ("methods nothing 2>&-", 2),
        ("methods nothing 2>/dev/full", 2),
        ("report nowhere >&-", 2),
        ("methods > /dev/full", 1),
        ("methods --json > /dev/full", 1),
    ],
)
def test_exit_codes_with_closed_and_full_streams(line: str, code: int) -> None:
    done = run_in_shell(line)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    if "> /dev/full" in line:
        assert done.stderr == (
            "tokencover: Cannot write to standard output: No space left on device.\n"
        )


def test_a_reader_that_has_seen_enough_gets_no_traceback() -> None:
    done = run_in_shell("methods --json | head -1; exit ${PIPESTATUS[0]}")
    assert done.stdout == "[\n"
    assert done.returncode in (0, 1)  # 0 if all was in the pipe before its reader left
    assert done.stderr == ""


def test_help_lists_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C." in printed


def test_tasks_have_one_name_in_all_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--data`, as `calibrate` called it once, is taken everywhere and listed nowhere."""
    for command in ("evaluate", "ablate", "calibrate", "report", "judge"):
        assert main([command, "--help"]) == 0
        printed = capsys.readouterr().out
        assert "--tasks" in printed
        assert "--data" not in printed
    for number, given in enumerate(
        [
            ["--data", "pebble/color", "pebble/place"],
            ["--data", "pebble/color", "--data", "pebble/place"],
            ["--tasks", "pebble/color,pebble/place"],
            ["--tasks", "pebble/color", "--tasks", "pebble/place"],
        ]
    ):
        out = tmp_path / f"{number}.json"
        assert main(["calibrate", *given, "--limit", "2", "--threads", "1", "--out", str(out)]) == 0
        names = [each["name"] for each in json.loads(out.read_text())["tasks"]]
        assert names == ["pebble/color", "pebble/place"]
    options = ["--data", "pebble/color", "--limit", "1", "--threads", "1", "--timing-batches", "0"]
    assert main(["evaluate", *options, "--out", str(tmp_path / "results")]) == 0
    assert [each.name for each in (tmp_path / "results").glob("scores-*")] == [
        "scores-unpruned-pebble_color-" + next((tmp_path / "results").glob("scores-*")).name[-13:]
    ]
