"""The report draws kept tokens on images of a few examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.evaluation.running import command
from tokencover.cli.app import main
from tokencover.errors import TokenCoverError
from tokencover.evaluation import make_task, read_commands
from tokencover.evaluation.report import KeptExample, KeptSide, explain_missing
from tokencover.evaluation.report.changes import ChangedAnswer
from tokencover.evaluation.report.kept_images import _choose_examples

ROW = {"image": "a.png", "question": "what is this ?", "answers": ["a"]}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluated") / "results"
    command(
        "--methods", "mob,random", "--budgets", "64,9", "--tasks", "pebble/color,pebble/place",
        "--limit", "1", "--timing-batches", "0", "--threads", "1", "--out", str(folder),
    )  # fmt: skip
    return folder


def test_the_smallest_budget_is_drawn_with_hover_text(results: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(results), "--images", "2", "--out", str(page)]) == 0
    text = page.read_text()
    assert "What was kept" in text
    assert text.count("9 of 576 visual tokens kept") == 4  # two examples, two methods each
    assert text.count("data:image/png;base64,") == 2  # each image once
    assert text.count('data-same="0"') == 4
    assert text.count('<div class="pair">') == 2


def test_fewer_pictures_than_requested_are_explained(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    arguments = ["report", str(results), "--out", str(page), "--images"]
    assert main([*arguments, "4"]) == 0
    assert "2 of 4 examples drawn; the tasks have 2 examples." in capsys.readouterr().err
    assert page.read_text().count('<article class="kept"') == 2
    assert main([*arguments, "2"]) == 0
    assert "--images" not in capsys.readouterr().err


def test_drawn_examples_are_different_and_fill_up() -> None:
    tasks = [make_task([ROW] * 3, name) for name in ("one", "two")]
    changed = ChangedAnswer("two", "0", "", (), "", "", "lost")
    chosen = list(_choose_examples(tasks, [changed], 4))
    found = [(task.name, example.id, change) for task, example, change in chosen]
    assert found == [("two", "0", "lost"), ("one", "0", ""), ("one", "1", ""), ("two", "1", "")]
    assert len(list(_choose_examples(tasks, [changed], 9))) == 6


def test_no_drawn_image_is_explained() -> None:
    side = KeptSide("mob", "64", "yes", "<p>Not drawn: the model was shown crops.</p>")
    kept = KeptExample("one", "0", "?", "yes", "", (side,))
    told = explain_missing([kept], 1)
    assert told.startswith("0 of 1 examples drawn; 1 cannot be drawn because the prompt has no")
    assert explain_missing([], 2) == "0 of 2 examples drawn; the tasks have no examples."


def test_page_shows_command_of_evaluate(results: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(results), "--out", str(page)]) == 0
    evaluated = (
        "tokencover evaluate --methods mob,random --budgets 64,9 "
        "--tasks pebble/color,pebble/place --limit 1 --timing-batches 0 --threads 1 "
        f"--out {results}"
    )
    assert f"<code>{evaluated}</code>" in page.read_text()
    assert f"<code>tokencover report {results} --out {page}</code>" in page.read_text()
    assert evaluated not in (results / "run.json").read_text()


def test_commands_of_resumed_and_sharded_runs_are_kept_once(tmp_path: Path) -> None:
    def evaluate(*arguments: str) -> None:
        command(
            "--tasks", "pebble/color", "--limit", "1", "--timing-batches", "0",
            "--threads", "1", "--out", str(tmp_path / "r"), *arguments,
        )  # fmt: skip

    evaluate("--shard", "1/2")
    evaluate("--shard", "0/2")
    evaluate("--methods", "mob", "--budgets", "64")
    with pytest.raises(TokenCoverError, match="contains another run"):
        evaluate("--batch-size", "3")
    rest = f"--tasks pebble/color --limit 1 --timing-batches 0 --threads 1 --out {tmp_path / 'r'}"
    assert read_commands(tmp_path / "r") == [
        f"tokencover evaluate {rest}",
        f"tokencover evaluate --methods mob --budgets 64 {rest}",
    ]


def test_without_pictures_no_model_is_needed(results: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(results), "--out", str(page)]) == 0
    assert "What was kept" not in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--images", "-1"], "got -1"), (["--images", "1", "--reference", "fastv"], "fastv")],
)
def test_mistakes_are_explained(
    results: Path,
    tmp_path: Path,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = tmp_path / "page.html"
    assert main(["report", str(results), *arguments, "--out", str(page)]) == 2
    assert message in capsys.readouterr().err
    assert not page.exists()


def test_other_weights_are_not_shown(results: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    copied.mkdir()
    for path in results.iterdir():
        (copied / path.name).write_text(
            path.read_text().replace(_weights(results), "0123456789abcdef")
        )
    page = tmp_path / "page.html"
    assert main(["report", str(copied), "--images", "1", "--out", str(page)]) == 2
    assert not page.exists()


def _weights(folder: Path) -> str:
    found: str = json.loads((folder / "run.json").read_text())["model"]["weights"]
    return found
