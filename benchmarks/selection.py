"""How fast is the selection? Ratios against Algorithm 1 written literally, in one run.

    python benchmarks/selection.py                       usual tokens, about five minutes
    python benchmarks/selection.py --kinds few-clusters,many-clusters,details
    python benchmarks/selection.py --kinds copies,tight-clusters,alike     hard to distinguish
    python benchmarks/selection.py --tokens 2880 --busy  with all cores but one taken by others
    python benchmarks/selection.py --tokens 100000 --kinds many-clusters --repeats 1

Every row also checks the result, index for index, against the literal loop run in float64. Peak
memory is what the selection adds on top of its inputs, measured in a fresh process (Linux only).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TypedDict

import torch
from torch import Tensor

from peak_memory import measure_added_peak
from tokencover.covering import Cover, mob_batch, mob_literal, snap

SIZES = [
    (576, 4096, 64),
    (576, 4096, 192),
    (2880, 4096, 320),
    (8192, 3584, 512),
    (32768, 3584, 512),
]
LARGEST = (100_000, 1024, 1024)
"""Only when it is asked for."""
CLUSTERS = {"few-clusters": (10, 0.1), "many-clusters": (200, 0.3), "tight-clusters": (5, 0.02)}
"""How many, and how wide: the spread of their tokens, where centres have spread 1."""
DETAILS = 0.1
"""Share of a page that is not background."""
KINDS = ["low-rank", "isotropic", *CLUSTERS, "details", "copies", "alike"]
PROMPT_TOKENS = 10
BATCH, LARGEST_BATCHED = 8, 2880
"""Samples of a batch, and up to which N there is a row for it."""
FRAMES = 8


class Counts(TypedDict):
    """K, Kp and k, as the selections take them."""

    budget: int
    prompt_budget: int
    fold: int


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    tokens: int
    width: int
    budget: int
    kind: str
    batch: int

    @property
    def prompt_budget(self) -> int:
        """Kp: half of the budget, as the paper has it for a reduction of 88.9 %."""
        return self.budget // 2

    @property
    def fold(self) -> int:
        """K = Kp / 8."""
        return max(1, self.prompt_budget // 8)

    @property
    def counts(self) -> Counts:
        """K, Kp and k, as the selections take them."""
        return {"budget": self.budget, "prompt_budget": self.prompt_budget, "fold": self.fold}

    @property
    def distinct(self) -> int:
        """How many tokens differ from all before them."""
        return self.tokens // FRAMES if self.kind == "copies" else self.tokens

    def make_inputs(self) -> tuple[Tensor, Tensor]:
        """Visual and prompt tokens.

        Low-rank: of rank 64 plus 1 % of noise energy. Isotropic: no structure at all. Clusters: in
        rank 32, see `CLUSTERS`. Details: one cluster as tight as the tightest, a blank page, and a
        tenth of the tokens anywhere. Copies: eight equal frames, each low-rank. Alike: twenty
        directions, and a millionth of noise energy.
        """
        generator = torch.Generator().manual_seed(self.tokens + self.budget)

        def draw(*shape: int) -> Tensor:
            return torch.randn(self.batch, *shape, generator=generator)

        if self.kind == "isotropic":
            return draw(self.tokens, self.width), draw(PROMPT_TOKENS, self.width)
        if self.kind in CLUSTERS or self.kind == "details":
            return self._draw_clusters(generator)
        basis = torch.randn(64, self.width, generator=generator) / 8.0

        def draw_low_rank(count: int) -> Tensor:
            return (draw(count, 64) @ basis).add_(draw(count, self.width), alpha=0.1)

        if self.kind == "alike":
            home = torch.arange(self.tokens) % 20
            visual = draw_low_rank(20)[:, home].add_(draw(self.tokens, self.width), alpha=1e-3)
        else:
            visual = draw_low_rank(self.distinct).repeat(1, self.tokens // self.distinct, 1)
        return visual, draw_low_rank(PROMPT_TOKENS)

    def _draw_clusters(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        number, spread = CLUSTERS.get(self.kind, (1, 0.02))
        noise = 0.02

        def draw(*shape: int) -> Tensor:
            return torch.randn(self.batch, *shape, 32, generator=generator)

        home = torch.randint(0, number, (self.tokens,), generator=generator)
        inside = draw(number)[:, home] + spread * draw(self.tokens) + noise * draw(self.tokens)
        if self.kind == "details":
            some = torch.rand(self.tokens, generator=generator) < DETAILS
            inside[:, some] = draw(self.tokens)[:, some]
        mapping = torch.randn(32, self.width, generator=generator)
        return inside @ mapping, draw(PROMPT_TOKENS) @ mapping


def select_literally(case: Case, visual: Tensor, prompt: Tensor) -> list[Tensor]:
    """The yardstick: one sample after the other, as Algorithm 1 is written."""
    covers = [mob_literal(v, p, **case.counts) for v, p in zip(visual, prompt, strict=True)]
    return [list_centers(cover) for cover in covers]


def select_with_library(case: Case, visual: Tensor, prompt: Tensor) -> list[Tensor]:
    """The same through the library."""
    return [list_centers(cover) for cover in mob_batch(visual, prompt, **case.counts)]


def list_centers(cover: Cover) -> Tensor:
    """All centres in order of choice."""
    return torch.cat([cover.prompt_centers, cover.visual_centers])


Selection = Callable[[Case, Tensor, Tensor], list[Tensor]]


def measure_times(
    case: Case, repeats: int, clock: Callable[[], float]
) -> tuple[list[float], list[float], bool]:
    """Seconds of both, taken alternately so that a noisy neighbour hits both."""
    visual, prompt = case.make_inputs()
    seconds: dict[Selection, list[float]] = {select_literally: [], select_with_library: []}
    found: dict[Selection, list[Tensor]] = {}
    settle()
    for turn in range(repeats + 1):
        for select, record in seconds.items():
            begin = clock()
            found[select] = select(case, visual, prompt)
            if turn:  # the first turn warms up
                record.append(clock() - begin)
    # In float32 the literal loop itself errs where two distances are nearly equal; in float64, on
    # the tokens as float32 resolves them, it does not.
    snapped = [(snap(v).grid, snap(p).grid) for v, p in zip(visual, prompt, strict=True)]
    same = all(
        torch.equal(list_centers(mob_literal(tokens, words, **case.counts)), ours)
        for (tokens, words), ours in zip(snapped, found[select_with_library], strict=True)
    )
    return seconds[select_literally], seconds[select_with_library], same


@contextmanager
def take_cores(number: int) -> Iterator[None]:
    """Keep some cores busy with programs of their own.

    Each begins a session of its own: a scheduler that shares time between sessions would otherwise
    take it for a part of this one.
    """
    spin = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(spin, start_new_session=True) for _ in range(number)]
    try:
        yield
    finally:
        for each in others:
            each.kill()
            each.wait()


def settle(seconds: float = 2.0) -> None:
    """Keep all threads busy: at first the system may run them on one core, for a second or so."""
    rows = torch.randn(2048, 2048)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        rows @ rows


@dataclass(frozen=True)
class Machine:
    """What this machine can do at best, measured: bytes read and multiply-adds, a second."""

    bandwidth: float
    products: float

    @classmethod
    def measure(cls, clock: Callable[[], float]) -> Machine:
        """The best of five readings of 256 MB, and of products of two 2048 x 2048 matrices."""
        many, square = torch.ones(2**26), torch.randn(2048, 2048)
        reading, multiplying = [], []
        settle(1.0)
        for _ in range(5):
            begin = clock()
            many.sum()
            middle = clock()
            square @ square
            reading.append(middle - begin)
            multiplying.append(clock() - middle)
        return cls(many.nbytes / min(reading), 2048**3 / min(multiplying))

    def bound_seconds(self, case: Case) -> float:
        """What no selection by these distances can beat.

        All tokens must be read once, and compared with the prompt tokens and with the prompt
        centres: without that it is not known which token is farthest from them. Copies need be
        compared once, and as many of the centres may be copies.
        """
        numbers, copies = case.batch * case.tokens * case.width, case.tokens // case.distinct
        compared = PROMPT_TOKENS + case.prompt_budget / copies
        return 4 * numbers / self.bandwidth + numbers / copies * compared / self.products


def measure_peak(case: Case, select: Selection) -> float:
    """What one call adds to the peak of a fresh process."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_measure_peak_here, (case, select))


def _measure_peak_here(case: Case, select: Selection) -> float:
    visual, prompt = case.make_inputs()
    small = Case(64, 32, 8, "isotropic", 1)
    select(small, *small.make_inputs())  # loads the libraries' own buffers
    return measure_added_peak(lambda: select(case, visual, prompt))


def format_row(case: Case, machine: Machine, arguments: argparse.Namespace) -> str:
    """Measure one case and format it."""
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    old, new, same = measure_times(case, arguments.repeats, clock)
    ratio = statistics.median(a / b for a, b in zip(old, new, strict=True))
    ways = () if arguments.no_memory else (select_literally, select_with_library)
    memory = " | ".join(f"{measure_peak(case, select):.0f}" for select in ways) or "- | -"
    return (
        f"| {case.tokens} | {case.width} | {case.budget} | {case.kind} | {case.batch} "
        f"| {1e3 * machine.bound_seconds(case):.1f} "
        f"| {1e3 * min(old):.1f} | {1e3 * min(new):.1f} | {ratio:.2f}x "
        f"| {min(new) / machine.bound_seconds(case):.1f} "
        f"| {'yes' if same else 'NO'} | {memory} |"
    )


def main() -> None:
    """Print the table, a row as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, help="only this N")
    parser.add_argument("--kinds", default="low-rank,isotropic", help=", ".join(KINDS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cpu-time", action="store_true", help="for machines with other work")
    parser.add_argument("--no-memory", action="store_true", help="leave out the last two columns")
    parser.add_argument("--single", action="store_true", help="no batches")
    parser.add_argument("--busy", action="store_true", help="take all cores but one")
    arguments = parser.parse_args()
    kinds = arguments.kinds.split(",")
    if not set(kinds) <= set(KINDS):
        parser.error(f"--kinds {arguments.kinds}: choose from {', '.join(KINDS)}")
    print(f"{torch.get_num_threads()} threads, float32, median ratio of {arguments.repeats} runs\n")
    machine = Machine.measure(time.process_time if arguments.cpu_time else time.perf_counter)
    print(
        f"reads {machine.bandwidth / 1e9:.1f} GB/s, multiplies {machine.products / 1e9:.0f} G/s\n"
    )
    print("| N | d | K | tokens | batch | bound ms | literal ms | ours ms | faster ", end="")
    print("| ours / bound | same indices | literal MB | ours MB |\n|" + "---|" * 13)
    others, alone = (os.cpu_count() or 1) - 1, arguments.single
    with take_cores(others) if arguments.busy else nullcontext():
        for tokens, width, budget in [*SIZES, LARGEST]:
            if arguments.tokens != tokens and (arguments.tokens or tokens == LARGEST[0]):
                continue
            for kind in kinds:
                for batch in (1, BATCH) if tokens <= LARGEST_BATCHED and not alone else (1,):
                    case = Case(tokens, width, budget, kind, batch)
                    print(format_row(case, machine, arguments), flush=True)


if __name__ == "__main__":
    main()
