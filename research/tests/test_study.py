"""Saved results: the study's answers in research/study/answers, some by old versions."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from research.study.tables import shorten_labels
from tests.evaluation.made_results import task
from tokencover.evaluation import Combination, ResultsFolder, Scoring, Timing, read_folder
from tokencover.evaluation.report import make_markdown, make_page
from tokencover.methods import from_json

STUDY = Path(__file__).parents[1] / "study" / "answers"


RUNS = {"seed1-flops": "flops", "clips": "clips", "boulder-flops": "boulder"}
"""Runs, and the archives that they lie in."""


@pytest.fixture(scope="module", params=RUNS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of the study's runs."""
    unpacked = tmp_path_factory.mktemp("study")
    with tarfile.open(STUDY / f"{RUNS[request.param]}.tar.xz") as archive:
        wanted = [each for each in archive if each.name.split("/")[0] == request.param]
        archive.extractall(unpacked, wanted, filter="data")
    return unpacked / str(request.param)


def test_tables_are_complete(folder: Path) -> None:
    stored = read_folder(folder)
    table = stored.compare()
    expected = {"seed1-flops": (151, 14), "clips": (16, 15), "boulder-flops": (126, 12)}
    assert (len(table.lines), len(stored.groups)) == expected[folder.name]
    assert table.lines[0].label == "unpruned"
    for line in table.lines:
        assert len(line.cells) == len(table.columns) or line.remark.startswith("cannot: ")
        assert "-" not in [cell.text for cell in line.cells[: len(table.columns) - 2]]
    assert all(line.cells for line in table.lines if line.label.startswith("mob"))
    labels = {line.label for line in table.lines}
    assert not any(label.endswith(")") and ":" not in label for label in labels)
    text, page = make_markdown(stored), make_page(stored)
    assert all(label in page.replace("&#x27;", "'") for label in labels)
    assert text.count("\n| ") == len(table.lines) + 2


def test_files_are_found_under_the_names_they_have(folder: Path) -> None:
    run = json.loads((folder / "run.json").read_text())
    results = ResultsFolder(folder, {key: value for key, value in run.items() if key != "format"})
    names = []
    for path in sorted(folder.glob("*-*.json")):
        found = json.loads(path.read_text())
        made = found["method"]
        combination = Combination(None if made is None else from_json(json.dumps(made)))
        asked = task(found["task"], found.get("group", "all"), found.get("version", ""))
        work = (Scoring if found["kind"] == "scores" else Timing)(combination, asked)
        names.append((work.file, path.name))
        results.read(work)
    assert names
    assert [found for found, _ in names] == [name for _, name in names]


def test_shorten_labels_omits_settings_of_unique_names() -> None:
    labels = ["mob:after=1", "fastv:after=3", "mob:after=1", "mob:after=0"]
    called = {"mob:after=1": "mob", "fastv:after=3": "fastv", "mob:after=0": "mob:after=0"}
    assert shorten_labels(labels) == called
    plain = {"mob:after=1": "mob:after=1", "fastv:after=3": "fastv", "mob": "mob"}
    assert shorten_labels(list(plain)) == plain
