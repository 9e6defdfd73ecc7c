"""`benchmarks/beyond.py`, in a process of its own: it registers methods."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TRIED = ["stages, mass 0.8", "stages by weighed words"]


def test_ways_beyond_the_paper_are_compared(tmp_path: Path) -> None:
    command = [sys.executable, "benchmarks/beyond.py", "--scenes", "2", "--out", str(tmp_path)]
    done = subprocess.run(
        [*command, "--only", *TRIED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    header, unpruned, *rows = done.stdout.strip().splitlines()
    assert header.split()[-4:] == ["192", "128", "64", "32"]
    assert unpruned.startswith("unpruned")
    assert [row[: len(name)] for row, name in zip(rows, TRIED, strict=True)] == TRIED
    for row in rows:
        assert all(0 <= float(score) <= 100 for score in row.split()[-4:])
