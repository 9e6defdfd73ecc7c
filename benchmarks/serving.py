"""What pruning saves in a server: requests a second, time to first token, memory.

    python benchmarks/serving.py --model pebble
    python benchmarks/serving.py --model wide             a random LLaVA of 27 million parameters
    python benchmarks/serving.py --model llava-hf/llava-1.5-7b-hf -- --max-model-len 4096

vLLM must be installed. Two servers run one after the other, with pruning and without; each gets the
same requests at every concurrency: about fresh images, and about one image again and again, a
new question each time. On a machine that does other things too, CPU seconds of the server are worth
more than the clock; all ratios are whole over pruned, so above 1 pruning is better.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
from PIL import Image

from chat_client import make_chat, to_url
from random_llava import copy_with_known_names, make_wide_llava
from server_runs import run, serve_pruned, serve_whole
from serving_loads import Load, compare, compute_percentile, describe
from tokencover.bundled_models import MODELS
from tokencover.files import write_atomically
from tokencover.loading import get_source
from tokencover.tables import print_table

WORDS = (
    *("what", "is", "there", "where", "how", "many", "red", "blue", "round", "things"),
    *("left", "right", "of", "the", "house"),
)


def make_bodies(kind: str, count: int, side: int, tokens: int, seed: int) -> list[bytes]:
    """Requests: each question is new, and so is each image if they are fresh."""
    draw = random.Random(seed)
    bodies = []
    for number in range(count):
        source = random.Random(seed + (number if kind == "fresh" else 0))
        small = Image.frombytes("RGB", (24, 24), source.randbytes(24 * 24 * 3))
        question = " ".join(draw.choices(WORDS, k=8))
        body = make_chat(question, to_url(small.resize((side, side))), max_tokens=tokens)
        bodies.append(json.dumps({**body, "stream": True, "ignore_eos": True}).encode())
    return bodies


def ask(port: int, body: bytes) -> float | None:
    """Send a request and read all of it; gives the seconds to the first token, None if it fails."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    begin, first = time.perf_counter(), None
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", body, headers)
        response = connection.getresponse()
        if response.status != 200:
            return None
        for line in response:
            if first is None and b'"content":"' in line.replace(b" ", b"").replace(b'""', b""):
                first = time.perf_counter() - begin
        return first if first is not None else time.perf_counter() - begin
    finally:
        connection.close()


def list_processes(port: int) -> list[psutil.Process]:
    """The server that listens there and all that it started."""
    listening = [
        each.pid for each in psutil.net_connections("tcp4")
        if each.laddr and each.laddr.port == port and each.status == psutil.CONN_LISTEN
    ]  # fmt: skip
    server = psutil.Process(listening[0])
    return [server, *server.children(recursive=True)]


def count_cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    """User and system time of all of them."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def measure_peak(processes: Sequence[psutil.Process]) -> int:
    """Megabytes: the sum of the largest sizes that they ever had."""
    found = 0
    for process in processes:
        status = Path(f"/proc/{process.pid}/status").read_text()
        lines = [line for line in status.splitlines() if line.startswith("VmHWM")]
        found += sum(int(line.split()[1]) for line in lines)
    return found // 1024


def put_under_load(
    port: int, server: str, kind: str, concurrency: int, options: argparse.Namespace
) -> Load:
    """Send all requests by so many clients, and measure."""
    count = options.requests * max(1, min(concurrency, 4))
    bodies = make_bodies(kind, count, options.side, options.tokens, concurrency)
    ask(port, make_bodies(kind, 1, options.side, options.tokens, 999 + concurrency)[0])
    processes = list_processes(port)
    used, begin = count_cpu_seconds(processes), time.perf_counter()
    with ThreadPoolExecutor(concurrency) as clients:
        found = list(clients.map(lambda body: ask(port, body), bodies))
    seconds = time.perf_counter() - begin
    used = count_cpu_seconds(processes) - used
    answered = [1000 * each for each in found if each is not None] or [float("nan")]
    first = {
        name: round(compute_percentile(answered, share), 1)
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
    }
    lost = sum(each is None for each in found)
    return Load(
        server, kind, concurrency, count, lost, seconds, used, first, measure_peak(processes)
    )


def read_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="pebble", help="pebble, wide, a folder or a hub name")
    parser.add_argument("--budget", default="64")
    parser.add_argument("--choose-by", default="question", choices=("question", "image"))
    parser.add_argument("--vision-cache-mb", default="256")
    parser.add_argument("--concurrency", default="1,8,32")
    parser.add_argument("--pictures", default="fresh,repeated")
    parser.add_argument("--requests", type=int, default=24, help="up to four times as many")
    parser.add_argument("--tokens", type=int, default=8, help="of each answer")
    parser.add_argument("--side", type=int, default=336, help="of each image, in pixels")
    parser.add_argument("--json", type=Path, help="write all numbers there")
    parser.add_argument("vllm", nargs="*", help="after --: options for both servers")
    return parser.parse_args()


def main() -> None:
    """Run both servers."""
    options = read_options()
    with tempfile.TemporaryDirectory() as folder:
        model = str(get_source(options.model)) if options.model in MODELS else options.model
        if options.model == "wide":
            model = str(Path(folder) / "made")
            make_wide_llava(Path(model))
        if options.model == "wide" or options.model in MODELS:
            copy_with_known_names(Path(model), Path(folder) / "copy")
            model = str(Path(folder) / "copy")
        ours = ["--budget", options.budget, "--choose-by", options.choose_by]
        ours += ["--vision-cache-mb", options.vision_cache_mb]
        commands = {
            "whole": serve_whole(model, *options.vllm),
            "pruned": serve_pruned(model, *ours, *options.vllm),
        }
        loads = []
        for server, command in commands.items():
            with run(command, Path(folder) / f"{server}.log") as port:
                for kind in options.pictures.split(","):
                    for clients in map(int, options.concurrency.split(",")):
                        loads.append(put_under_load(port, server, kind, clients, options))
                        print(json.dumps(asdict(loads[-1])), flush=True)
    for table in (describe(loads), compare(loads)):
        print()
        print_table(table)
    if options.json is not None:
        document: list[dict[str, Any]] = [asdict(each) for each in loads]
        write_atomically(options.json, json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
