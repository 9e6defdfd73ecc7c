import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from PIL import Image

from tests.cli.loaded_process import LoadedProcess
from tests.evaluation.running import SMALL, command, contents, image_task
from tokencover import evaluation
from tokencover.cli.app import main
from tokencover.cli.values import parse_shard
from tokencover.errors import InputError, TokenCoverError
from tokencover.evaluation import comparison, load_model
from tokencover_models.pebble import PICTURE_CHECKPOINT

START = "import sys; from tests.evaluation.running import command; command(*sys.argv[1:])"
ARGUMENTS = ("--methods", "mob,fastv", "--budgets", "64", *SMALL)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of one process."""
    folder = tmp_path_factory.mktemp("whole")
    command(*ARGUMENTS, "--out", str(folder), "--timing-batches", "1")
    return folder


def test_a_table_is_printed(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command(*ARGUMENTS, "--out", str(whole), "--timing-batches", "1")
    printed = capsys.readouterr()
    assert "| method | budget | fine | coarse | Avg. % |" in printed.out
    assert printed.out.index("| unpruned |") < printed.out.index("| mob | 64 |")
    assert "8 of 8 are done already" in printed.err


@pytest.mark.parametrize(
    "reference",
    ["fastv:after=2", '{"method": "fastv", "after": 2, "budget_mode": "flops"}', "fastv"],
)
def test_a_reference_is_named_like_any_method(
    whole: Path, capsys: pytest.CaptureFixture[str], reference: str
) -> None:
    """Two blocks is the default, so that this is the method without settings."""
    command(*ARGUMENTS, "--out", str(whole), "--timing-batches", "1", "--reference", reference)
    assert "| minus fastv [95 %] |" in capsys.readouterr().out


def test_methods_are_named_with_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command(
        "--methods", 'fastv:after=1,{"method": "mob", "after": 2}', "--budgets", "64",
        "--tasks", "pebble/color", "--limit", "1", "--timing-batches", "0",
        "--reference", "mob:after=2", "--out", str(tmp_path),
    )  # fmt: skip
    printed = capsys.readouterr().out
    assert "| minus mob:after=2 [95 %] |" in printed
    assert "| fastv:after=1 | 64 |" in printed
    assert "| mob:after=2 | 64 |" in printed


def test_the_run_is_described(whole: Path) -> None:
    found = json.loads((whole / "run.json").read_text())
    assert found["model"]["name"] == "pebble"
    assert set(found["versions"]) == {"tokencover", "torch", "transformers"}
    assert found["settings"] == {
        "split": "test",
        "limit": 2,
        "batch_size": 16,
        "max_new_tokens": 16,
    }


def test_two_processes_give_what_one_gives(
    loaded: LoadedProcess, whole: Path, tmp_path: Path
) -> None:
    out, told = tmp_path / "out", tmp_path / "told"
    told.mkdir()
    arguments = (*ARGUMENTS, "--out", str(out), "--timing-batches", "0", "--shard")
    loaded.start(START, *arguments, "0/2", told=told)
    command(*arguments, "1/2")
    half = len(contents(whole, ["scores"])) // 2
    assert len(contents(out, ["scores"])) >= half
    assert loaded.wait() == 0, (told / "stderr").read_text()
    assert contents(out) == contents(whole)
    assert "| mob | 64 |" in (told / "stdout").read_text()


def test_a_killed_run_goes_on(loaded: LoadedProcess, whole: Path, tmp_path: Path) -> None:
    out, told = tmp_path / "out", tmp_path / "told"
    told.mkdir()
    arguments = (*ARGUMENTS, "--out", str(out), "--timing-batches", "0")
    number = loaded.start(START, *arguments, told=told)
    deadline = time.monotonic() + 120
    while not list(out.glob("scores-*.json")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(number, signal.SIGKILL)
    assert loaded.wait() == -signal.SIGKILL
    assert 0 < len(contents(out, ["scores"])) < len(contents(whole, ["scores"]))
    command(*arguments)
    assert contents(out) == contents(whole)
    assert not list(out.glob("*.tmp"))


def test_a_part_says_that_others_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command("--tasks", "pebble/color,pebble/place", "--limit", "1", "--shard", "1/2",
            "--out", str(tmp_path), "--threads", "1")  # fmt: skip
    assert "part 1 of 2 is done" in capsys.readouterr().out
    assert [name.split("-")[2] for name in contents(tmp_path, ["scores"])] == ["pebble_place"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["--limit", "1"], "settings.limit was 2, now 1"),
        (["--batch-size", "1"], "settings.batch_size was 16, now 1"),
        (["--split", "validation"], "settings.split was 'test', now 'validation'"),
    ],
)
def test_other_settings_do_not_go_on(whole: Path, changed: list[str], message: str) -> None:
    before = contents(whole)
    with pytest.raises(TokenCoverError, match=message):
        command(*ARGUMENTS, *changed, "--out", str(whole))
    assert contents(whole) == before


def test_other_weights_do_not_go_on(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def retrained(name: str, **_: object) -> object:
        loaded = load_model(name)
        loaded.model.model.language_model.norm.weight.data[3] += 1
        return loaded

    monkeypatch.setattr(evaluation, "load_model", retrained)
    with pytest.raises(TokenCoverError, match=r"model\.weights was"):
        command(*ARGUMENTS, "--out", str(whole))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "mob", "--budgets", "many"], "--budgets must be a count"),
        (["--methods", "mob"], "mob has no budget"),
        (["--methods", "magic", "--budgets", "64"], "'magic'"),
        (["--methods", "final_wipe", "--budgets", "64"], "--method-json"),
        (["--method-json", "{"], "--method-json must be a JSON object"),
        (["--method-json", "3"], "--method-json must be a JSON object such as"),
        (["--method-json", '{"after": 3}'], '"method" name'),
        (["--tasks", ""], "--tasks is empty"),
        (["--tasks", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--timing-batches", "-1"], "got -1"),
        (["--reference", "mob:later=2"], "mob has no setting later"),
        (["--reference", "mob:after=1,fastv"], "--reference must be one method"),
        (["--shard", "2"], "--shard must be"),
        (["--shard", "2/2"], "no process 2 of 2"),
        (["--model", "no/such/model"], "'no/such/model' cannot be loaded"),
        (["--device", "toaster"], "toaster"),
    ],
)
def test_mistakes_are_explained(tmp_path: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(TokenCoverError, match=message):
        command(*arguments, "--limit", "1", "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_stopping_says_how_to_go_on(
    whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison, "do_work", stopped)
    with pytest.raises(SystemExit) as caught:
        command(*ARGUMENTS, "--out", str(whole))
    assert caught.value.code == 130
    assert "the same command resumes" in capsys.readouterr().err


def test_launchers_tell_the_part_by_the_environment() -> None:
    assert parse_shard(None, {}) == (0, 1)
    assert parse_shard(None, {"RANK": "3", "WORLD_SIZE": "8"}) == (3, 8)
    assert parse_shard("1/2", {"RANK": "3", "WORLD_SIZE": "8"}) == (1, 2)


def warn_lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = capsys.readouterr().err.splitlines()
    return [line for line in lines if "was trained on scenes that tokencover draws" in line]


def test_a_bundled_model_warns_of_other_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = image_task(tmp_path / "pebble-mine.jsonl", 1)
    options = ["--limit", "1", "--threads", "1", "--timing-batches", "0"]
    command("--tasks", f"pebble/color,{mine}", *options, "--out", str(tmp_path / "mine"))
    (line,) = warn_lines(capsys)
    assert line.startswith("tokencover: pebble was trained on scenes that tokencover draws")
    command("--tasks", "pebble/color", *options, "--out", str(tmp_path / "own"))
    assert warn_lines(capsys) == []


def test_a_model_that_is_not_bundled_does_not_warn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "llava"
    shutil.copytree(PICTURE_CHECKPOINT, folder)
    mine = image_task(tmp_path / "mine.jsonl", 1)
    options = ["--tasks", str(mine), "--threads", "1", "--timing-batches", "0"]
    command("--model", str(folder), *options, "--out", str(tmp_path / "results"))
    assert warn_lines(capsys) == []


def test_ask_warns_of_other_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("RGB", (30, 20), "navy").save(tmp_path / "mine.png")
    asked = ["ask", "--question", "which place is this ?", "--out", str(tmp_path / "out")]
    assert main([*asked, "--image", str(tmp_path / "mine.png")]) == 0
    assert len(warn_lines(capsys)) == 1
    assert main(asked) == 0
    assert warn_lines(capsys) == []


def test_budgets_without_methods_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there are budgets, 64, but no methods"):
        command(*SMALL, "--budgets", "64", "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
