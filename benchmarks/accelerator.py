"""What does a selection ask of an accelerator? Kernels, bytes, host reads and peak memory.

    python benchmarks/accelerator.py                  all sizes, a minute, on any machine
    python benchmarks/accelerator.py --dtype bfloat16
    python benchmarks/accelerator.py --time           on a machine with CUDA or MPS: seconds, too

Three ways are compared: `ours` (`covering/together/`), the `literal` loop of Algorithm 1 in
float32, and the same loop in `float64` on exact cosines, which is what exactness costs when it is
bought by precision alone. They are run on tensors that have shapes and no values, and their
operators are counted (`kernel_counter.py` has the rules); the samples are taken to be such that
estimates can tell their tokens apart.

The milliseconds for named GPUs are ESTIMATES: the sum over all kernels of the larger of bytes by
bandwidth and products by peak rate, or the time to launch them from Python if that is longer.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from unittest.mock import patch

import torch
from torch import Tensor

from kernel_counter import Tally, count_kernels
from tokencover.covering import cosine, mob_batch, snap

PROMPT_TOKENS = 10
LAUNCH = 5e-6
"""Seconds in which torch launches a kernel from Python, about."""


@dataclass(frozen=True)
class Row:
    """One row of the table; Kp = K / 2 and k = Kp / 8."""

    tokens: int
    width: int
    budget: int
    batch: int

    @property
    def prompt_budget(self) -> int:
        """Kp."""
        return self.budget // 2

    @property
    def fold(self) -> int:
        """The paper's k."""
        return max(1, self.prompt_budget // 8)


ROWS = [
    Row(tokens, width, budget, batch)
    for tokens, width, budget in [
        (576, 4096, 64),
        (2880, 4096, 320),
        (8192, 3584, 512),
        (32768, 3584, 512),
    ]
    for batch in (1, 8)
]


@dataclass(frozen=True)
class Accelerator:
    """A GPU by its data sheet: bytes a second, multiply-adds a second."""

    name: str
    bandwidth: float
    float32: float
    float64: float

    def estimate_seconds(self, tally: Tally) -> float:
        """See the top of this file."""
        device = sum(
            max(moved / self.bandwidth, single / self.float32 + double / self.float64)
            for _, moved, single, double in tally.kernels
        )
        return max(device, LAUNCH * len(tally.kernels))


ACCELERATORS = [
    Accelerator("A100 80GB", 2.04e12, 19.5e12 / 2, 9.7e12 / 2),
    Accelerator("H100 SXM", 3.35e12, 66.9e12 / 2, 33.5e12 / 2),
    Accelerator("RTX 4090", 1.008e12, 82.6e12 / 2, 1.29e12 / 2),
]


def select_ours(row: Row, visual: Tensor, prompt: Tensor) -> None:
    """The library."""
    mob_batch(visual, prompt, budget=row.budget, prompt_budget=row.prompt_budget, fold=row.fold)


def select_literally(row: Row, visual: Tensor, prompt: Tensor) -> None:
    """Algorithm 1's loop in float32, for all samples at once and with nothing read back."""
    tokens, words = visual.float(), prompt.float()
    squares = [torch.linalg.vecdot(each, each) for each in (tokens, words)]
    lengths = (squares[1].unsqueeze(-1) * squares[0].unsqueeze(-2)).sqrt_()
    _run_loop(row, tokens, squares[0], (words @ tokens.mT).div_(lengths))


def select_in_float64(row: Row, visual: Tensor, prompt: Tensor) -> None:
    """The same on exact cosines: float64 everywhere."""
    points, words = snap(visual), snap(prompt)
    _run_loop(row, points.grid, points.square, cosine(words, points))


def _run_loop(row: Row, tokens: Tensor, square: Tensor, similarity: Tensor) -> Tensor:
    proposed = similarity.argsort(dim=-1, descending=True, stable=True)[..., : row.fold]
    score = similarity.amax(1)
    marked = torch.zeros_like(score).scatter_(1, proposed.flatten(1), 1.0)
    start = (score * marked).argsort(dim=-1, descending=True, stable=True)[:, : row.prompt_budget]
    distance = _measure(tokens, square, start).amin(-1).scatter_(1, start, -math.inf)
    order = start.new_empty(len(tokens), row.budget - row.prompt_budget)
    for step in range(order.shape[1]):
        pick = distance.argmax(-1, keepdim=True)
        order[:, step : step + 1] = pick
        to_pick = _measure(tokens, square, pick).amin(-1)
        distance = torch.minimum(distance, to_pick).scatter_(1, pick, -math.inf)
    return order


def _measure(grid: Tensor, square: Tensor, index: Tensor) -> Tensor:
    """Cosine distances of all tokens to some, from their squared lengths."""
    rows = grid.gather(1, index.unsqueeze(-1).expand(-1, -1, grid.shape[-1]))
    length = (square.unsqueeze(-1) * square.gather(1, index).unsqueeze(1)).clamp_(min=1.0).sqrt_()
    return (1.0 - (grid @ rows.mT).div_(length)).clamp_(min=0.0)


WAYS: dict[str, Callable[[Row, Tensor, Tensor], None]] = {
    "ours": select_ours,
    "literal": select_literally,
    "float64": select_in_float64,
}


def count_on_shapes(row: Row, way: str, dtype: torch.dtype = torch.float32) -> Tally:
    """Count what one call asks for, on tensors without values."""
    visual, prompt = (
        torch.empty(row.batch, size, row.width, dtype=dtype, device="meta")
        for size in (row.tokens, PROMPT_TOKENS)
    )

    def read(*values: Tensor) -> list[list[int]]:
        """What the host reads if all is well: every flag set, Kp candidates, N tokens."""
        tally.reads += 1
        first = [[1], [row.prompt_budget] * row.batch, [row.tokens] * row.batch]
        flags = [1] * row.batch
        return [*first, flags] if len(values) == len(first) + 1 else [flags, first[1]]

    with (
        patch("tokencover.covering.accelerator.read_together", read),
        patch("tokencover.covering.mob.keep_precision", nullcontext),  # there is no such device
        count_kernels() as tally,
    ):
        WAYS[way](row, visual, prompt)
    return tally


def format_counts(row: Row, way: str, dtype: torch.dtype) -> str:
    """One line of the table."""
    tally = count_on_shapes(row, way, dtype)
    centers = row.budget - row.prompt_budget
    estimates = [f"{1e3 * each.estimate_seconds(tally):.1f}" for each in ACCELERATORS]
    return (
        f"| {row.tokens} | {row.width} | {row.budget} | {row.batch} | {way} "
        f"| {len(tally.kernels)} | {len(tally.kernels) / centers:.1f} | {tally.bytes / 1e9:.2f} "
        f"| {tally.reads} | {tally.peak / 1e6:.0f} | " + " | ".join(estimates) + " |"
    )


def time_ways(row: Row, device: torch.device, dtype: torch.dtype, repeats: int = 5) -> str:
    """Seconds of every way on a device, taken in turns."""
    generator = torch.Generator().manual_seed(0)
    basis = torch.randn(64, row.width, generator=generator) / 8.0

    def draw(count: int) -> Tensor:
        inside = torch.randn(row.batch, count, 64, generator=generator) @ basis
        noise = torch.randn(row.batch, count, row.width, generator=generator)
        return (inside + 0.1 * noise).to(device, dtype)

    visual, prompt = draw(row.tokens), draw(PROMPT_TOKENS)
    wait = torch.cuda.synchronize if device.type == "cuda" else torch.mps.synchronize
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(repeats + 1):
        for name, select in WAYS.items():
            if name == "float64" and device.type == "mps":
                continue
            wait()
            begin = time.perf_counter()
            select(row, visual, prompt)
            wait()
            seconds[name].append(time.perf_counter() - begin)
    medians = [statistics.median(values[1:]) if values else math.nan for values in seconds.values()]
    cells = " | ".join(f"{1e3 * each:.1f}" for each in medians)
    return f"| {row.tokens} | {row.width} | {row.budget} | {row.batch} | {cells} |"


def get_accelerator() -> torch.device | None:
    """An accelerator, if there is one."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps") if torch.backends.mps.is_available() else None


def main() -> None:
    """Print the tables, a row as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--rows", type=int, help="only so many of the sizes, small ones first")
    parser.add_argument("--time", action="store_true", help="time it on CUDA or MPS, too")
    arguments = parser.parse_args()
    dtype = getattr(torch, arguments.dtype)
    gpus = " | ".join(f"{each.name} ms (estimate)" for each in ACCELERATORS)
    print(f"{arguments.dtype} tokens, {PROMPT_TOKENS} words, Kp = K/2\n")
    print(
        f"| N | d | K | batch | way | kernels | per visual centre | GB | host reads | MB | {gpus} |"
    )
    print("|" + "---|" * (10 + len(ACCELERATORS)))
    rows = ROWS[: arguments.rows]
    for row in rows:
        for way in WAYS:
            print(format_counts(row, way, dtype), flush=True)
    if not arguments.time:
        return
    device = get_accelerator()
    if device is None:
        parser.error("--time: torch sees neither CUDA nor MPS here")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "Apple MPS"
    print(f"\n{name}, torch {torch.__version__}, median of 5\n")
    print("| N | d | K | batch | " + " | ".join(f"{way} ms" for way in WAYS) + " |")
    print("|" + "---|" * (4 + len(WAYS)))
    for row in rows:
        print(time_ways(row, device, dtype), flush=True)


if __name__ == "__main__":
    main()
