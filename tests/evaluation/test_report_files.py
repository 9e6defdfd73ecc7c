"""What `tokencover report` writes: a page only if one is asked for, or nothing else is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.evaluation.made_results import open_folder, write
from tokencover.cli.app import main
from tokencover.methods import MoB

ROOT = Path(__file__).parents[2]
FIGURE_PACKAGES = ("altair", "jinja2", "vl_convert")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results, in a working directory without any other file."""
    monkeypatch.chdir(tmp_path)
    results = open_folder(tmp_path / "results")
    write(results, None, {"GQA": [1, 1, 1]})
    write(results, MoB(64), {"GQA": [1, 0, 1]}, tokens=64, flops=0.2)
    return results.folder


@pytest.mark.parametrize(
    ("option", "name", "text"),
    [
        ("--csv", "rows.csv", "mob,64"),
        ("--latex", "table.tex", "MoB"),
        ("--markdown", "table.md", "| mob |"),
        ("--export", "all.json", "tokencover results"),
    ],
)
def test_tables_need_no_package_and_write_no_page(
    option: str,
    name: str,
    text: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for package in FIGURE_PACKAGES:
        monkeypatch.setitem(sys.modules, package, None)
    assert main(["report", str(folder), option, name]) == 0
    assert text in Path(name).read_text()
    assert capsys.readouterr().out == f"wrote {name}\n"
    assert {each.name for each in Path().iterdir()} == {"results", name}


def test_tables_do_not_import_what_draws(folder: Path) -> None:
    code = (
        "import sys; from tokencover.cli.app import main; code = main(sys.argv[1:]); "
        f"sys.exit(99 if set({FIGURE_PACKAGES}) & set(sys.modules) else code)"
    )
    tables = ["--csv", f"{folder}/../rows.csv", "--latex", f"{folder}/../table.tex"]
    command = [sys.executable, "-c", code, "report", str(folder), *tables]
    assert subprocess.run(command, check=False, cwd=ROOT).returncode == 0


@pytest.mark.parametrize(
    ("options", "files"),
    [
        ([], {"report.html"}),
        (["--csv", "rows.csv", "--out", "page.html"], {"rows.csv", "page.html"}),
        (["--csv", "rows.csv", "--against", "results"], {"rows.csv", "report.html"}),
        (["--figures", "figures", "--format", "svg"], {"figures"}),
    ],
)
def test_a_page_is_written_if_it_is_asked_for_or_nothing_else_is(
    options: list[str], files: set[str], folder: Path
) -> None:
    assert main(["report", str(folder), *options]) == 0
    assert {each.name for each in Path().iterdir()} == {"results", *files}


@pytest.mark.parametrize("package", ["altair", "vl_convert"])
def test_figures_need_their_packages_before_the_work(
    package: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["report", str(folder), "--figures", "figures", "--csv", "rows.csv"]) == 1
    assert f"drawing charts needs {package}, which is not installed" in capsys.readouterr().err
    assert {each.name for each in Path().iterdir()} == {"results"}
