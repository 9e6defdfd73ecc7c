"""`tokencover evaluate --parallel tensor` under torchrun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.cli.calling import call
from tokencover.errors import InputError

METHODS = ["--methods", "mob,fastv", "--budgets", "64", "--timing-batches", "0", "--threads", "1"]
TASKS = ["--tasks", "pebble/color,pebble/place", "--limit", "24", "--batch-size", "4"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
SECONDS = 300


def make_command(out: Path, *options: str) -> list[str]:
    return ["-m", "tokencover", "evaluate", *METHODS, *TASKS, "--out", str(out), *options]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def start_and_kill_a_rank(command: list[str], out: Path) -> int:
    """Kill the second rank after the first unit; the exit code of torchrun."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        end = time.monotonic() + SECONDS
        while not list(out.glob("scores-*.json")) and time.monotonic() < end:
            assert running.poll() is None
            time.sleep(0.05)
        ranks = [each for each in psutil.Process(running.pid).children() if _is_rank(each, "1")]
        os.kill(ranks[0].pid, signal.SIGKILL)
        output, _ = running.communicate(timeout=SECONDS)
    assert b"Signal 9" in output
    assert psutil.pid_exists(running.pid) is False
    return running.returncode


def _is_rank(process: psutil.Process, rank: str) -> bool:
    return bool(process.environ().get("RANK") == rank)


def test_a_split_model_makes_the_same_table_and_resumes_after_a_kill(tmp_path: Path) -> None:
    alone = run([sys.executable, *make_command(tmp_path / "one")])
    out = tmp_path / "two"
    command = [*TORCHRUN, *make_command(out, "--parallel", "tensor")]
    assert start_and_kill_a_rank(command, out) != 0
    resumed = run(command)
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    assert " are done already, " in resumed.stderr
    assert resumed.stdout == alone.stdout
    assert "| mob | 64 |" in alone.stdout


def test_ranks_that_cannot_open_the_results_all_fail(tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("not a folder of results")
    done = run([*TORCHRUN, *make_command(tmp_path, "--parallel", "tensor")])
    assert done.returncode != 0
    assert "is not a folder of results" in done.stderr


def test_bench_prints_once(tmp_path: Path) -> None:
    options = ["--methods", "fastv", "--budgets", "64", "--repeats", "1", "--tokens-out", "2"]
    done = run([*TORCHRUN, "-m", "tokencover", "bench", *options, "--parallel", "tensor"])
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("fastv") == 1


@pytest.mark.parametrize("option", [["--shard", "0/2"], ["--device", "cpu"]])
def test_options_that_do_not_go_with_a_split_model(
    option: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(InputError, match=rf"{option[0]} .* cannot be combined with"):
        call("evaluate", "--parallel", "tensor", *option)


def test_a_split_model_needs_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(InputError, match="torchrun --nproc-per-node 2"):
        call("evaluate", "--parallel", "tensor")
