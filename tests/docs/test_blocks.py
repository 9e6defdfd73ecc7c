"""Every block of code in README and docs runs, or says what it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

from PIL import Image

from tests.docs.pages import ROOT, list_blocks, read_pages
from tests.docs.shell_lines import DRAWN

CHECKED = {"python", "sh", "json", "toml"}
LEFT_ALONE = {"", "bibtex", "text", "yaml"}
"""Drawings, citations, output."""


def test_blocks_are_of_languages_that_are_checked() -> None:
    unknown = {
        f"{name}:{block.line}: {block.language!r}"
        for name, text in read_pages().items()
        for block in list_blocks(text)
        if block.language not in CHECKED | LEFT_ALONE
    }
    assert not unknown


def test_blocks_run_as_pasted(tmp_path: Path) -> None:
    """All pages in one process, where modules are loaded once; a session of its own for each."""
    paths = [ROOT, ROOT / "tools", ROOT / "src"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.docs.run_pages", str(tmp_path)],
        check=False, capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["pages"] > 30
    assert len(told["lines"]) > 30
    assert not told["failed"], "\n\n".join(f"{page}\n{why}" for page, why in told["failed"].items())
    assert ["python", "tools/draw_pictures.py"] in told["lines"]
    check_images(tmp_path / "docs-guide-how-mob-works.md" / "images")


def check_images(folder: Path) -> None:
    """They are drawn as those that were committed."""
    for name in DRAWN:
        with Image.open(folder / f"{name}.png") as drawn:
            with Image.open(ROOT / "docs" / "images" / f"{name}.png") as committed:
                assert drawn.size == committed.size
            colors = drawn.convert("RGB").getcolors(1 << 24)
        assert colors is not None
        assert len(colors) > 20


def test_json_and_toml_blocks_can_be_read() -> None:
    for text in read_pages().values():
        for block in list_blocks(text):
            if block.language == "json":
                lines = [line for line in block.text.splitlines() if line]
                assert all(isinstance(json.loads(line), dict) for line in lines)
            elif block.language == "toml":
                assert tomllib.loads(block.text)


def test_code_block_in_list_is_dedented() -> None:
    page = "1. one\n\n    ```python\n    if x:\n        y\n    ```\n\n```sh\nls\n```\n"
    assert [(each.language, each.text, each.line) for each in list_blocks(page)] == [
        ("python", "if x:\n    y", 4),
        ("sh", "ls", 9),
    ]
