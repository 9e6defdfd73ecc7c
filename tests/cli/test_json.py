"""Every command that prints a table prints it for a program too."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from tokencover.cli.app import main
from tokencover.methods import METHODS
from tokencover_models.pebble.data import make_examples

COLOR = ("--tasks", "pebble/color", "--limit", "1")


def read(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_methods(capsys: pytest.CaptureFixture[str]) -> None:
    found = read(capsys, "methods")
    assert {each["name"] for each in found} == {method.name for method in METHODS}
    assert all(each["families"] for each in found)


def test_models(capsys: pytest.CaptureFixture[str]) -> None:
    found = read(capsys, "models")
    assert "qwen2_vl" in [name for each in found["supported"] for name in each["model_types"]]
    assert "mllama" in [each["model_type"] for each in found["refused"]]


def test_evaluate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--methods", "mob", "--budgets", "64", "--timing-batches", "0")
    found = read(capsys, "evaluate", *COLOR, *options, "--out", str(tmp_path))
    assert [row["method"] for row in found["rows"]] == ["unpruned", "mob"]
    assert found["rows"][1]["tokens"] == 64
    assert found["run"]["model"]["name"] == "pebble"


def test_ablate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--what", "k-prompt", "--values", "0.5", "--budgets", "64", "--split", "test")
    found = read(capsys, "ablate", *COLOR, *options, "--out", str(tmp_path))
    (setting,) = found["settings"]
    assert (setting["x"], setting["method"]["split"]["prompt_budget"]) == (32, 32)
    assert setting["accuracy"]["all tasks"] in (0, 1)


def test_calibrate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "profile.json"
    asked = ("--data", "pebble/color", "--limit", "4", "--out", str(place))
    found = read(capsys, "calibrate", *asked)
    assert found["count"] == 4
    assert found.items() > json.loads(place.read_text()).items()


def test_bench(capsys: pytest.CaptureFixture[str]) -> None:
    quick = ("--methods", "mob", "--budgets", "64", "--repeats", "1", "--tokens-out", "1")
    assert read(capsys, "bench", *quick)["rows"]


def test_ask(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Questions come from standard input here."""
    questions = [each.question for each in make_examples("test", 1, ["color", "place"])]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(questions)))
    found = read(capsys, "ask", "--question", "-", "--out", str(tmp_path))
    assert [each["question"] for each in found] == questions
    for number, each in enumerate(found, start=1):
        assert each["picture"] == str(tmp_path / f"kept-{number}.png")
        trace = each["trace"]
        assert len(trace["kept"]) == 64
        assert sorted(trace["prompt_centers"] + trace["visual_centers"]) == trace["kept"]
        assert trace["coupling"] > 0
        assert each["seconds"]["pruned"] > 0
