"""A full disk: the message names the file, the exit code is 1, what was saved before is kept."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.running import contents
from tokencover import files
from tokencover.cli.app import main
from tokencover.evaluation import store

SMALL = ("--tasks", "pebble/color,pebble/place", "--limit", "2", "--threads", "1")
METHODS = ("--methods", "mob", "--budgets", "64")
EVALUATE = ("evaluate", *SMALL, *METHODS, "--timing-batches", "0")


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No file can be written whole any more."""

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    return monkeypatch


def check(capsys: pytest.CaptureFixture[str], path: Path, *arguments: str) -> str:
    """Run a command that fails to write this file, and leaves nothing of it; returns its words."""
    assert main(list(arguments)) == 1
    said = capsys.readouterr().err
    (line,) = [each for each in said.splitlines() if each.startswith("tokencover: ")]
    assert line.startswith(f"tokencover: {path} cannot be written: No space left on device.")
    assert not path.exists()
    assert not list(path.parent.glob(".*.part"))
    return line


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("done")
    assert main([*EVALUATE, "--out", str(folder)]) == 0
    return folder


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("--out", "page.html"),
        ("--csv", "rows.csv"),
        ("--latex", "table.tex"),
        ("--markdown", "table.md"),
        ("--export", "all.json"),
    ],
)
def test_report(
    option: str,
    name: str,
    results: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    full: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / name
    check(capsys, path, "report", str(results), option, str(path))


def test_figures(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], full: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "figures" / "fig3-flops.svg"
    figures = ["--figures", str(path.parent), "--format", "svg"]
    check(capsys, path, "report", str(results), *figures)


def test_bench_prints_its_table_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], full: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "costs.json"
    quick = ("--methods", "mob", "--budgets", "64", "--repeats", "1", "--tokens-out", "1")
    check(capsys, path, "bench", *quick, "--out", str(path))
    assert main(["bench", *quick, "--out", str(path)]) == 1
    assert "GFLOPs" in capsys.readouterr().out


def test_ask(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    asked = ["ask", "--question", "which place is this ?", "--out", str(tmp_path)]
    assert main(asked) == 0
    capsys.readouterr()
    before = contents(tmp_path, [""])
    monkeypatch.setattr(os, "fsync", fail)
    assert main(asked) == 1
    assert f"{tmp_path / 'picture.png'} cannot be written" in capsys.readouterr().err
    assert contents(tmp_path, [""]) == before


def test_evaluate_keeps_what_is_finished_and_resumes(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written: list[Path] = []
    write = files.write_atomically

    def fill(path: Path, text: str) -> None:
        if len(written) == 3:  # run.json, commands.txt and the first unit
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "fsync", _fail)
                write(path, text)
        written.append(path)
        write(path, text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "write_atomically", fill)
        (path,) = sorted(
            tmp_path / each.name for each in results.glob("scores-unpruned-pebble_place-*")
        )
        line = check(capsys, path, *EVALUATE, "--out", str(tmp_path))
    assert f"What was finished before is safe in {tmp_path}" in line
    saved = {"run.json", path.name.replace("pebble_place", "pebble_color").rpartition("-")[0]}
    assert {each.rpartition("-")[0] or each for each in contents(tmp_path)} == saved
    assert main([*EVALUATE, "--out", str(tmp_path)]) == 0
    assert contents(tmp_path) == contents(results)


def _fail(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_evaluate_while_it_saves_within_a_task(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [*EVALUATE, "--batch-size", "1", "--out", str(tmp_path)]
    write = files.write_atomically

    def fill(path: Path, text: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            if path.name.endswith(".partial"):
                patch.setattr(os, "fsync", _fail)
            write(path, text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "SAVE_EVERY", 0.0)
        patch.setattr(store, "write_atomically", fill)
        (name,) = (each.name for each in results.glob("scores-unpruned-pebble_color-*"))
        check(capsys, tmp_path / f"{name}.partial", *options)
    assert main(options) == 0


def test_calibrate_while_it_writes_a_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open_full(path: Path, mode: str = "r", **options: Any) -> Any:
        return Full() if mode == "a" else real(path, mode, **options)

    real, out = Path.open, tmp_path / "profile.json"
    options = ["calibrate", *SMALL, "--out", str(out)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", open_full)
        assert main(options) == 1
    record = tmp_path / "profile.batches.jsonl"
    assert f"tokencover: {record} cannot be written: No space left" in capsys.readouterr().err
    assert len(record.read_text().splitlines()) == 1
    assert main(options) == 0
    assert out.exists()
