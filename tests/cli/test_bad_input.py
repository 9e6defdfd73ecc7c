"""Invalid input: images, questions, files, names. Errors are raised before a model is loaded."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from tests.evaluation.running import image_task
from tests.test_images import save_animation, write_bomb, write_large, write_text, write_truncated
from tokencover import loading
from tokencover.cli import process
from tokencover.cli.app import main
from tokencover_models.pebble import load_pebble

CORES = os.cpu_count() or 1


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a model fails: what is wrong must be reported before."""

    def refuse(*_: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(loading, "_load_pair", refuse)


def write_good(path: Path) -> None:
    Image.new("RGB", (30, 20), "navy").save(path)


ASK = ("ask", "--image", "{folder}/x.png", "--question", "which place is this ?")
EVALUATE = ("evaluate", "--tasks", "{folder}/mine.jsonl", "--threads", "1")
COLOR = ("--tasks", "pebble/color", "--limit", "1")


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        # images, which are opened before a model is loaded
        (write_bomb, ASK, "x.png is too large"),
        (write_large, ASK, "x.png is too large: it has 10000 x 10000 pixels, the maximum"),
        (write_truncated, ASK, "x.png, it is truncated or damaged"),
        (write_text, ASK, "x.png as an image. Supported formats include"),
        (Path.touch, ASK, "x.png is empty (0 bytes)"),
        (Path.mkdir, ASK, "x.png is a folder: pass the image itself"),
        (None, ASK, "there is no image"),
        (write_text, ("bench", *ASK[1:]), "x.png as an image"),
        (write_bomb, EVALUATE, "mine: {folder}/x.png is too large"),
        (Path.touch, EVALUATE, "x.png is empty (0 bytes), not a valid file"),
        (None, EVALUATE, "mine: there is no file {folder}/x.png. Repair it, or let --keep-going"),
        (None, ("calibrate", "--tasks", "{folder}/mine.jsonl"), "there is no file {folder}/x.png"),
        # questions
        (write_good, (*ASK[:-1], "  "), "A question is empty. Ask for example"),
        (write_good, ASK[:3], "Ask a question about your image"),
        (None, ("bench", "--question", ""), "A question is empty"),
        (None, ("ask", "--scene", "99999"), "--scene must be from 0 to 399, got 99999"),
        (None, ("ask", "--scene", "-1"), "--scene must be from 0 to 399, got -1"),
        # methods to compare with
        (None, ("evaluate", *COLOR, "--methods", "fastv", "--budgets", "64", "--reference", "mob"),
         "nothing can be compared with 'mob': there are no results of it, only of fastv."),
        (None, ("evaluate", *COLOR, "--reference", "mob"), "only of the unpruned model"),
        (None, ("evaluate", *COLOR, "--budgets", ","), "fractions (0.111), got ','"),
    ],
)  # fmt: skip
def test_mistakes_are_told_before_a_model_is_loaded(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    make: Callable[[Path], object] | None,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    if make is not None:
        make(tmp_path / "x.png")
    row = {"image": "x.png", "question": "what is this ?", "answer": "a cat"}
    (tmp_path / "mine.jsonl").write_text(json.dumps(row))
    given = [each.format(folder=tmp_path) for each in arguments]
    assert main([*given, "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert message.format(folder=tmp_path) in told
    assert told.startswith("tokencover: ")
    assert told.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "command", ["ask", "evaluate", "calibrate", "bench", "report x", "ablate", "studio"]
)
@pytest.mark.parametrize("number", ["0", "-1", str(CORES + 1), "many"])
def test_threads_are_checked_everywhere(
    command: str, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--threads", number]) == 2
    assert "Invalid value for '--threads'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["evaluate", "calibrate", "ablate --what fold"])
def test_limits_are_checked_everywhere(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--limit", "0"]) == 2
    assert "Invalid value for '--limit'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["--max-upload", "--max-pixels", "--max-new-tokens"])
def test_bounds_of_the_studio_are_checked(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["studio", name, "0"]) == 2
    assert f"Invalid value for '{name}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cores", "load", "free"),
    [(2, 0.1, 2), (2, 1.0, 1), (2, 7.0, 1), (8, 0.4, 8), (8, 3.6, 4), (1, 0.0, 1)],
)
def test_by_default_a_command_takes_the_cores_that_are_free(
    cores: int, load: float, free: int
) -> None:
    assert process.count_idle_cores(cores, load) == free


def test_the_users_word_on_threads_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    found: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", found.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(process, "count_cores", lambda: 4)
    monkeypatch.setattr(process, "get_load", lambda: 1.2)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    process.set_threads(None)
    process.set_threads(4)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    process.set_threads(None)
    assert found == [3, 4]


@pytest.mark.parametrize(
    "name",
    ["nowhere", "./nowhere", "/no/where", "no/such/model", "{folder}/model", "tests/nowhere"],
)
def test_a_folder_that_is_not_there_is_told_without_asking_the_hub(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    name = name.format(folder=tmp_path)
    assert main(["ask", "--model", name, "--out", str(tmp_path)]) == 2
    assert f"{name!r} cannot be loaded: there is no such folder" in capsys.readouterr().err


def test_a_hub_that_is_not_there_is_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def refuse(host: str, *_: object) -> None:
        asked.append(host)
        raise OSError("no such host")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    for name in loading.PROXIES:
        monkeypatch.delenv(name, raising=False)
    assert main(["ask", "--model", "owner/model", "--out", str(tmp_path)]) == 1
    assert "neither a folder nor in the cache" in capsys.readouterr().err
    assert asked == ["huggingface.co"]


def test_an_animation_is_shown_by_its_first_frame(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_animation(tmp_path / "x.gif")
    asked = ["--image", str(tmp_path / "x.gif"), "--question", "which place is this ?"]
    assert main(["ask", *asked, "--out", str(tmp_path)]) == 0
    told = capsys.readouterr().err
    assert "x.gif is animated: the first of its 9 frames is used" in told


def test_words_that_a_model_does_not_know_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["ask", "--question", "what is the meaning of life ?", "--out", str(tmp_path)]
    assert main(asked) == 0
    assert "pebble has no token for 'meaning', 'life'" in capsys.readouterr().err
    assert main(["ask", "--question", "which place is this ?", "--out", str(tmp_path)]) == 0
    assert "no token" not in capsys.readouterr().err


def test_pictures_of_ones_own_data_are_found_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = image_task(tmp_path / "my.jsonl", 1)
    options = ["--methods", "mob", "--budgets", "64", "--timing-batches", "0"]
    results, page = str(tmp_path / "results"), tmp_path / "page.html"
    assert main(["evaluate", "--tasks", str(path), *options, "--out", results]) == 0
    assert main(["report", results, "--images", "1", "--out", str(page)]) == 0
    assert page.read_text().count('<figure style="margin:0') == 2  # whole, and what was kept
    path.rename(tmp_path / "moved.jsonl")
    assert main(["report", results, "--images", "1", "--out", str(page)]) == 2
    assert "Pass their location as --tasks" in capsys.readouterr().err
    assert main(["report", results, "--reference", "dart", "--out", str(page)]) == 2
    assert "nothing can be compared with 'dart'" in capsys.readouterr().err


HOLD = """
import sys, time
from pathlib import Path
from tokencover.evaluation import ResultsFolder
with ResultsFolder(Path(sys.argv[1]), {}).claim(*map(int, sys.argv[2:])):
    print("at work", flush=True)
    time.sleep(60)
"""


def test_two_processes_do_not_write_to_one_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same part, or the whole and a part, are refused; different parts are not."""
    options = ["evaluate", *COLOR, "--out", str(tmp_path)]
    assert main(options) == 0
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path), "0", "2"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "at work\n"
        assert main(options) == 1
        assert "another process is writing results to" in capsys.readouterr().err
        assert main([*options, "--shard", "0/2"]) == 1
        assert main([*options, "--shard", "1/2"]) == 0
    finally:
        other.kill()
        other.communicate()
    deadline = time.monotonic() + 10
    while main(options) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert main(options) == 0


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize("command", ["ask", "evaluate"])
def test_a_file_in_the_place_of_a_folder_is_told_first(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_good(tmp_path / "x.png")
    assert main([command, "--out", str(tmp_path / "x.png")]) == 2
    assert "x.png is a file, pass a folder" in capsys.readouterr().err


def test_the_word_for_a_picture_is_no_word_of_a_question(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Chats for training have it in them; a processor would look for a second image."""
    asked = ["ask", "--question", "<image> which place is this ?", "--out", str(tmp_path)]
    assert main(asked) == 2
    assert "has '<image>' in it, which stands for images" in capsys.readouterr().err


def test_a_scene_that_is_not_there_is_told_without_torch() -> None:
    code = (
        "import sys; from tokencover.cli.app import main; code = main(sys.argv[1:]); "
        "sys.exit(99 if 'torch' in sys.modules else code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "ask", "--scene", "99999"], check=False, capture_output=True
    )
    assert done.returncode == 2


def test_one_scene_is_made_and_not_all_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tokencover_models.pebble import data

    made: list[int] = []

    def make(seed: int) -> object:
        made.append(seed)
        return make_scene(seed)

    make_scene = data.make_scene
    monkeypatch.setattr(data, "make_scene", make)
    assert main(["ask", "--scene", "399", "--out", str(tmp_path), "--json"]) == 0
    assert made == [399]
    document = json.loads(capsys.readouterr().out)
    assert [each["trace"]["visual_tokens"] for each in document] == [576] * len(document)


def test_the_bundled_model_loads(no_model: None) -> None:
    """The guard above guards what `load` calls, not the model itself."""
    assert load_pebble()[0].config.model_type == "llava"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("evaluate --limit 0", "'0'"),
        ("evaluate --limit=many", "'many'"),
        ("bench --threads 9999", "'9999'"),
        ("ablate --what nothing", "'nothing'"),
    ],
)
def test_errors_of_options_name_the_value(
    line: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert line.split()[1].partition("=")[0] in message
    assert message.count(value) == 1
