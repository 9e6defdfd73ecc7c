"""Starts and ends servers, each a separate process with its engine in another."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from chat_client import get

STARTING_SECONDS = 400
SMALL_CPU = {
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}
"""Where the environment says nothing else; vLLM reads them on CPUs alone."""
ON_CPU = (
    *("--dtype", "float32", "--block-size", "32", "--enforce-eager"),
    *("--distributed-executor-backend", "uni"),
)
"""Where there is nothing else to run on; what is asked for explicitly comes later, and wins."""
ALWAYS = ("--served-model-name", "served", "--uvicorn-log-level", "warning")


@contextmanager
def run(command: Sequence[str], log: Path) -> Iterator[int]:
    """Run a server while the block lasts; gives its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**SMALL_CPU, **os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    with log.open("w") as out:
        process = subprocess.Popen(
            [*command, *ALWAYS, "--host", "127.0.0.1", "--port", str(port)],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    try:
        wait_for(process, port, log)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Until the server is well."""
    end = time.monotonic() + STARTING_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended: {log.read_text()[-4000:]}")
        try:
            if get(port, "/health")[0] == 200:
                return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError(f"no server after {STARTING_SECONDS} s: {log.read_text()[-4000:]}")


def serve_pruned(model: str, *options: str) -> list[str]:
    """The command of a server with pruning."""
    start = [sys.executable, "-m", "tokencover", "serve", model]
    return [*start, *choose_for_device(), *options]


def serve_whole(model: str, *options: str) -> list[str]:
    """The command of the same server without it."""
    server = "vllm.entrypoints.openai.api_server"
    return [sys.executable, "-m", server, "--model", model, *choose_for_device(), *options]


def choose_for_device() -> tuple[str, ...]:
    """Options of vLLM for this machine."""
    return () if torch.cuda.is_available() else ON_CPU
