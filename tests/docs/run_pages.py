"""Run the Python blocks of pages as a reader would: pasted in order, one session a page.

    python -m tests.docs.run_pages FOLDER

Works in FOLDER, where things lie that the pages speak of and do not make: a model under a name of
the hub (pebble, which is a LLaVA), a picture, results. Prints a JSON object with what went wrong.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tarfile
import traceback
from pathlib import Path
from typing import Any

from tests.docs.pages import ROOT, find_blocks, read_pages

OUTSIDE = Path("llava-hf") / "llava-1.5-7b-hf"


def main(folder: Path) -> None:
    """Run all pages."""
    pages = {
        name: blocks
        for name, text in read_pages().items()
        if (blocks := [each for each in find_blocks(text) if each.language == "python"])
    }
    failed: dict[str, str] = {}
    for name, blocks in pages.items():
        place = folder / name.replace("/", "-")
        lay_out(place)
        os.chdir(place)
        space: dict[str, Any] = {"__name__": "__main__"}
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            for block in blocks:
                # Lines are counted as in the page, so that a traceback says where to look.
                code = "\n" * (block.line - 1) + block.text
                try:
                    exec(compile(code, name, "exec"), space)
                except Exception:
                    failed[name] = f"block at line {block.line}: {traceback.format_exc(limit=-3)}"
                    break
    print(json.dumps({"pages": len(pages), "failed": failed}))


def lay_out(place: Path) -> None:
    """Make the folder of a page, with what it speaks of and does not make."""
    from tokencover.pebble import PICTURE_CHECKPOINT
    from tokencover.pebble.data import draw_scene, make_scene

    (place / OUTSIDE.parent).mkdir(parents=True)
    (place / OUTSIDE).symlink_to(PICTURE_CHECKPOINT)
    draw_scene(make_scene(7)).save(place / "cat.png")
    lines = [{"image": "cat.png", "question": "which color is most common ?", "answers": ["white"]}]
    (place / "mine.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (place / "profile.json").write_text(_make_profile())
    if place.name == "docs-evaluation.md":
        with tarfile.open(ROOT / "docs" / "study" / "clips.tar.xz") as archive:
            archive.extractall(place, filter="data")
        (place / "clips").rename(place / "results")


def _make_profile() -> str:
    from tokencover.budget import Profile

    return json.dumps(Profile.of("pebble", 1, {"task": [1.4, 1.41, 1.42] * 20}).document())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
