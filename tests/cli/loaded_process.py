"""A process that has imported torch and transformers, which takes seconds, and forks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, os, sys
from transformers import LlavaForConditionalGeneration

for line in sys.stdin:
    code, arguments, told = json.loads(line)
    child = os.fork()
    if child == 0:
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(os.path.join(told, name), os.O_WRONLY | os.O_CREAT), number)
        sys.argv = ["-c", *arguments]
        exec(code, {"__name__": "__main__"})
        sys.exit()
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class LoadedProcess:
    """Starts programs as `python -c` does, one after the other.

    What is ours they import themselves; what they print lies in files of the folder that is given.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self._running: int | None = None

    def start(self, code: str, *arguments: str, told: Path) -> int:
        """Start a program, and give its process number."""
        self._kill()
        assert self._process.stdin is not None
        print(json.dumps([code, arguments, str(told)]), file=self._process.stdin, flush=True)
        self._running = self._read_number()
        return self._running

    def wait(self) -> int:
        """The exit code of the program that was started, when it has ended."""
        code = self._read_number()
        self._running = None
        return code

    def end(self) -> None:
        """Let the process go."""
        self._kill()
        self._process.communicate()

    def _kill(self) -> None:
        """End what a test that failed has left running."""
        if self._running is not None:
            os.kill(self._running, signal.SIGKILL)
            self.wait()

    def _read_number(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


def wait_for_words(told: Path, words: str, seconds: float = 120) -> None:
    """Until a program has printed a line."""
    deadline = time.monotonic() + seconds
    while f"{words}\n" not in _read(told / "stdout"):
        assert time.monotonic() < deadline, _read(told / "stderr")
        time.sleep(0.02)


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
