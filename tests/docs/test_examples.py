"""Every example runs unmodified, without network, and does what it describes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The folder that examples wrote into, and what each printed."""
    folder = tmp_path_factory.mktemp("examples")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.docs.run_examples", str(folder)],
        check=False, capture_output=True, text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "src"))),
            "HF_HUB_OFFLINE": "1",
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout.splitlines()[-1])


def test_all_of_them_do_what_they_say(told: tuple[Path, dict[str, str]]) -> None:
    """One test, because they run in one process."""
    folder, printed = told
    assert len(printed) == 6

    answers = re.findall(r"(?:all tokens|pruned): +(\w+)", printed["prune_a_model.py"])
    assert len(answers) == 2
    assert answers[0] == answers[1]
    assert "kept 64 of 576" in printed["prune_a_model.py"]

    rows = [line.split() for line in printed["compare_methods.py"].splitlines()[1:]]
    assert [row[0] for row in rows] == ["mob", "nearest", "farthest", "fastv", "divprune", "random"]
    assert float(rows[4][4]) == 64.0  # DivPrune prunes before the decoder

    assert "one group: there are 8 samples" in printed["calibrate_the_split.py"]
    assert (folder / "calibrate_the_split" / "profile.json").is_file()

    drawn = folder / "draw_kept_tokens"
    assert (drawn / "kept.png").read_bytes().startswith(b"\x89PNG")
    assert "<figure" in (drawn / "kept.html").read_text(encoding="utf-8")

    assert "all tokens: 6 of 6 right" in printed["add_your_own_method.py"]
    assert "Outliers(budget=64" in printed["add_your_own_method.py"]
    assert "divprune" in printed["tour.ipynb"]


def test_the_notebook_is_stored_without_output() -> None:
    """Its images would be larger than the package."""
    notebook = json.loads((ROOT / "examples" / "tour.ipynb").read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 5
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)


def test_the_list_names_all_of_them() -> None:
    text = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    found = {
        path.name for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".ipynb")
    }
    assert set(re.findall(r"\[(\w+\.(?:py|ipynb))\]", text)) == found
