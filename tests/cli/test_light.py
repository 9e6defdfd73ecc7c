"""Commands that only tell something answer at once: nothing heavy is imported for them."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "numpy", "PIL")
MOST_SECONDS = 0.5
"""Of CPU time, user and system together, on a machine that has nothing else to do."""
RUN = f"""
import contextlib, io, sys
from tokencover.cli.app import main

for line in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as told:
        code = main(line.split())
    heavy = [name for name in {HEAVY} if name in sys.modules]
    if code or heavy or not told.getvalue().strip():
        sys.exit(f"{{line}}: code {{code}}, imported {{heavy}}, told {{told.getvalue()!r}}")
"""
"""One process for all, because nothing that one of them imports goes away again."""
COMMANDS = (
    "ask", "methods", "models", "evaluate", "judge", "report", "ablate", "calibrate", "bench",
    "serve",
)  # fmt: skip
TIMED = ["--help", "--version", "methods", "models", "evaluate --help"]
"""Others import as little, which is looked at for all."""
LIGHT = list(dict.fromkeys([*TIMED, *(f"{name} --help" for name in COMMANDS)]))


def test_nothing_heavy_is_imported() -> None:
    end = subprocess.run(
        [sys.executable, "-c", RUN, *LIGHT], capture_output=True, text=True, check=False
    )
    assert end.returncode == 0, end.stderr


@pytest.mark.parametrize("arguments", TIMED)
def test_it_takes_less_than_half_a_second(arguments: str, importing_torch: float) -> None:
    """On a machine that is slow or busy: far less than importing torch takes there."""
    command = [sys.executable, "-m", "tokencover", *arguments.split()]
    most = max(MOST_SECONDS, importing_torch / 3)
    assert any(measure(command) < most for _ in range(3))


@pytest.fixture(scope="module")
def importing_torch() -> float:
    return measure([sys.executable, "-c", "import torch"])


def measure(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=True, env={**os.environ, "COLUMNS": "80"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
