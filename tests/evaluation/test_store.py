import dataclasses
import errno
import json
import os
from pathlib import Path

import pytest

from tests.evaluation.running import RUN
from tokencover.errors import InputError
from tokencover.evaluation import load_tasks
from tokencover.evaluation.plan import Combination, Scoring, Timing
from tokencover.evaluation.records import Record, ResultsError, Scores, Seconds
from tokencover.evaluation.store import ResultsFolder
from tokencover.methods import MoB

COLOR, PLACE = load_tasks(["pebble/color", "pebble/place"], limit=2)
WORK = Scoring(Combination(MoB(64)), COLOR)
TIMING = Timing(Combination(MoB(64)), COLOR)
SCORES = Scores(
    (
        Record("0", "a", "größer", 0.5, 64, 149.3, 0.25),
        Record("1", "b", failed="RuntimeError: no"),
    )
)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    results = ResultsFolder.open(tmp_path / "new" / "folder", RUN)
    assert not results.is_finished(WORK)
    results.write(WORK, SCORES)
    results.write(TIMING, Seconds((1.5, 2.0), (0.5, 0.75)))
    again = ResultsFolder.open(tmp_path / "new" / "folder", RUN)
    assert again.is_finished(WORK)
    assert again.read(WORK) == SCORES
    assert again.read(TIMING) == Seconds((1.5, 2.0), (0.5, 0.75))
    assert not list(again.folder.glob("*.tmp"))
    assert not list(again.folder.glob("*.part"))


def test_reasons_are_kept(tmp_path: Path) -> None:
    results = ResultsFolder.open(tmp_path, RUN)
    results.write(WORK, Scores(cannot="too small"))
    results.write(TIMING, Seconds(cannot="too small"))
    assert results.read(WORK).cannot == results.read(TIMING).cannot == "too small"


def test_a_failed_example_has_no_score() -> None:
    with pytest.raises(ValueError, match="neither scored nor failed"):
        Record("0", "a", "", 0.0, 64, 64.0, 1.0, failed="no")
    with pytest.raises(ValueError, match="neither scored nor failed"):
        Record("0", "a", "red")


def test_another_run_is_refused_with_what_differs(tmp_path: Path) -> None:
    ResultsFolder.open(tmp_path, RUN)
    other = {"model": {"name": "llava"}, "settings": {"limit": None}}
    with pytest.raises(InputError) as caught:
        ResultsFolder.open(tmp_path, other)
    assert "model.name was 'pebble', now 'llava'" in str(caught.value)
    assert "settings.limit was 2, now None" in str(caught.value)
    assert "--out" in str(caught.value)


def test_a_setting_that_is_new_is_a_difference(tmp_path: Path) -> None:
    ResultsFolder.open(tmp_path, RUN)
    with pytest.raises(InputError, match="seed was None, now 3"):
        ResultsFolder.open(tmp_path, {**RUN, "seed": 3})


def test_folders_with_other_things_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match=r"no run\.json, but thesis\.tex"):
        ResultsFolder.open(tmp_path, RUN)
    with pytest.raises(InputError, match="cannot be a folder"):
        ResultsFolder.open(tmp_path / "thesis.tex", RUN)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


@pytest.mark.parametrize("left", ["run.json.77.tmp", ".run.json.1f2e3d4c.part"])
def test_a_run_killed_while_it_began_can_begin_again(tmp_path: Path, left: str) -> None:
    (tmp_path / left).write_text("{")
    assert ResultsFolder.open(tmp_path, RUN).run == RUN


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"kind": "scores"}', "\x00\x01"], ids=["empty", "cut", "list", "", "0"]
)
def test_damaged_files_are_named(tmp_path: Path, text: str) -> None:
    results = ResultsFolder.open(tmp_path, RUN)
    (tmp_path / WORK.file).write_text(text)
    with pytest.raises(ResultsError, match=f"{WORK.file} is damaged.*Delete it"):
        results.read(WORK)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    results = ResultsFolder.open(tmp_path, RUN)
    (tmp_path / TIMING.file).write_bytes(b"\xff\xff")
    with pytest.raises(ResultsError, match=f"{TIMING.file} is damaged"):
        results.read(TIMING)


@pytest.mark.parametrize("change", [{"score": None}, {"mood": "good"}, {"failed": "no"}])
def test_damaged_records_are_noticed(tmp_path: Path, change: dict[str, object]) -> None:
    results = ResultsFolder.open(tmp_path, RUN)
    results.write(WORK, SCORES)
    found = json.loads((tmp_path / WORK.file).read_text())
    found["examples"][0].update(change)
    (tmp_path / WORK.file).write_text(json.dumps(found))
    with pytest.raises(ResultsError, match="damaged"):
        results.read(WORK)


def test_files_of_others_are_noticed(tmp_path: Path) -> None:
    results = ResultsFolder.open(tmp_path, RUN)
    others = [
        Scoring(Combination(MoB(32)), COLOR),
        Scoring(Combination(MoB(64)), PLACE),
        Scoring(Combination(MoB(64)), dataclasses.replace(COLOR, version="other")),
    ]
    for other, what in zip(others, ("method", "task", "version"), strict=True):
        results.write(other, SCORES)
        (tmp_path / other.file).rename(tmp_path / WORK.file)
        with pytest.raises(ResultsError, match=f"another {what}"):
            results.read(WORK)


def test_files_of_another_run_are_noticed(tmp_path: Path) -> None:
    other = ResultsFolder.open(tmp_path / "other", {**RUN, "model": {"name": "llava"}})
    other.write(WORK, SCORES)
    results = ResultsFolder.open(tmp_path / "mine", RUN)
    (other.folder / WORK.file).rename(results.folder / WORK.file)
    with pytest.raises(ResultsError, match="another run"):
        results.read(WORK)


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = ResultsFolder.open(tmp_path, RUN)
    results.write(WORK, SCORES)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(ResultsError, match=r"No space left on device.*free space"):
            results.write(WORK, Scores())
        with pytest.raises(ResultsError, match="No space left"):
            results.write(TIMING, Seconds())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_that_may_not_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*args: object, **kwargs: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "replace", denied)
    with pytest.raises(ResultsError, match=r"run\.json cannot be written.*Permission denied"):
        ResultsFolder.open(tmp_path, RUN)
    assert not list(tmp_path.iterdir())
