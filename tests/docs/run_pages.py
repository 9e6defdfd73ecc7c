"""Run the code blocks of pages as a reader would: pasted in order, one session per page.

    python -m tests.docs.run_pages FOLDER

Works in FOLDER, with the files that pages mention but do not create: a model under a name on the
Hugging Face Hub (pebble, which is a LLaVA), an image, questions. `shell_lines` lists commands that
run with less work or not at all. Prints a JSON object with the lines run and the errors.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback
from functools import cache
from pathlib import Path
from typing import Any

from tests.docs.pages import ROOT, SHELLS, list_blocks, read_pages, split_commands
from tests.docs.shell_lines import get_skip_reason, run_line

OUTSIDE = ("llava-hf/llava-1.5-7b-hf", "MODEL")
FOLLOWED_ELSEWHERE = ("README.md",)
"""Its commands are run whole, with the wheel in an empty environment: tools/try_wheel.py."""


def main(folder: Path) -> None:
    """Run all pages."""
    failed: dict[str, str] = {}
    lines: list[list[str]] = []
    for name, text in read_pages().items():
        place = folder / name.replace("/", "-")
        build_folder(place)
        os.chdir(place)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            why = run_page(name, text, lines)
        if why:
            failed[name] = why
    print(json.dumps({"pages": len(read_pages()), "lines": lines, "failed": failed}))


def run_page(name: str, text: str, lines: list[list[str]]) -> str:
    """Do the blocks of a page in order, and note its commands; what went wrong, or nothing."""
    space: dict[str, Any] = {"__name__": "__main__"}
    for block in list_blocks(text):
        try:
            if block.language == "python":
                # Lines are counted as in the page, so that a traceback says where to look.
                exec(compile("\n" * (block.line - 1) + block.text, name, "exec"), space)
            elif block.language in SHELLS and name not in FOLLOWED_ELSEWHERE:
                for words in split_commands(block.text):
                    if get_skip_reason(words, lines) is None:
                        lines.append(words)
                        if why := run_line(words):
                            return f"block at line {block.line}: {' '.join(words)}: {why}"
        except (Exception, SystemExit):
            return f"block at line {block.line}: {traceback.format_exc(limit=-3)}"
    return ""


def build_folder(place: Path) -> None:
    """Create the folder of a page, with files that it mentions but does not create."""
    from tokencover_models.pebble import PICTURE_CHECKPOINT

    for model in OUTSIDE:
        (place / model).parent.mkdir(parents=True, exist_ok=True)
        (place / model).symlink_to(PICTURE_CHECKPOINT)
    (place / "research").symlink_to(ROOT / "research")
    (place / "cat.png").write_bytes(_draw_picture())
    question = {"image": "cat.png", "question": "which color is most common ?", "answer": "white"}
    for file in ("mine", "other", "test", "my-questions", "gqa", "textvqa"):
        (place / f"{file}.jsonl").write_text(json.dumps(question))
    (place / "profile.json").write_text(_make_profile())


@cache
def _draw_picture() -> bytes:
    from tokencover_models.pebble.data import draw_scene, make_scene

    drawn = io.BytesIO()
    draw_scene(make_scene(7)).save(drawn, "png")
    return drawn.getvalue()


@cache
def _make_profile() -> str:
    from tokencover.budget import Profile

    return json.dumps(Profile.of("pebble", 1, {"task": [1.4, 1.41, 1.42] * 20}).document())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
