"""How fast is the selection? Ratios against Algorithm 1 written literally, in one run.

    python benchmarks/selection.py            all sizes
    python benchmarks/selection.py --tokens 2880
    python benchmarks/selection.py --tokens 2880 --kinds copies,alike    tokens hard to tell apart

Every row also checks the result, index for index, against the literal loop run in float64. Peak
memory is what the selection adds on top of its inputs, measured in a fresh process (Linux only).
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import torch
from torch import Tensor

from tokencover.covering import Cover, mob_batch, mob_literal, snap

SIZES = [
    (576, 4096, 64),
    (576, 4096, 192),
    (2880, 4096, 320),
    (8192, 3584, 512),
    (32768, 3584, 512),
]
KINDS = ["low-rank", "isotropic", "copies", "alike"]
PROMPT_TOKENS = 10
BATCH = 8
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

        Low-rank: of rank 64 plus 1 % of noise energy. Isotropic: no structure at all. Copies: eight
        equal frames, each low-rank. Alike: twenty directions, and a millionth of noise energy.
        """
        generator = torch.Generator().manual_seed(self.tokens + self.budget)

        def draw(*shape: int) -> Tensor:
            return torch.randn(self.batch, *shape, generator=generator)

        if self.kind == "isotropic":
            return draw(self.tokens, self.width), draw(PROMPT_TOKENS, self.width)
        basis = torch.randn(64, self.width, generator=generator) / 8.0

        def draw_low_rank(count: int) -> Tensor:
            return (draw(count, 64) @ basis).add_(draw(count, self.width), alpha=0.1)

        if self.kind == "alike":
            home = torch.arange(self.tokens) % 20
            visual = draw_low_rank(20)[:, home].add_(draw(self.tokens, self.width), alpha=1e-3)
        else:
            visual = draw_low_rank(self.distinct).repeat(1, self.tokens // self.distinct, 1)
        return visual, draw_low_rank(PROMPT_TOKENS)


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


def measure_times(case: Case, repeats: int) -> tuple[list[float], list[float], bool]:
    """Seconds of both, taken alternately so that a noisy neighbour hits both."""
    visual, prompt = case.make_inputs()
    seconds: dict[Selection, list[float]] = {select_literally: [], select_with_library: []}
    found: dict[Selection, list[Tensor]] = {}
    settle()
    for turn in range(repeats + 1):
        for select, record in seconds.items():
            begin = time.perf_counter()
            found[select] = select(case, visual, prompt)
            if turn:  # the first turn warms up
                record.append(time.perf_counter() - begin)
    # In float32 the literal loop itself errs where two distances are nearly equal; in float64, on
    # the tokens as float32 resolves them, it does not.
    snapped = [(snap(v).grid, snap(p).grid) for v, p in zip(visual, prompt, strict=True)]
    same = all(
        torch.equal(list_centers(mob_literal(tokens, words, **case.counts)), ours)
        for (tokens, words), ours in zip(snapped, found[select_with_library], strict=True)
    )
    return seconds[select_literally], seconds[select_with_library], same


def settle(seconds: float = 2.0) -> None:
    """Keep all threads busy: at first the system may run them on one core, for a second or so."""
    rows = torch.randn(2048, 2048)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        rows @ rows


def measure_peak(case: Case, select: Selection) -> float:
    """What one call adds to the peak of a fresh process."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_measure_peak_here, (case, select))


def _measure_peak_here(case: Case, select: Selection) -> float:
    visual, prompt = case.make_inputs()
    small = Case(64, 32, 8, "isotropic", 1)
    select(small, *small.make_inputs())  # loads the libraries' own buffers
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
    before = _read_kilobytes("VmRSS")
    select(case, visual, prompt)
    return (_read_kilobytes("VmHWM") - before) / 1024


def _read_kilobytes(name: str) -> int:
    """A memory figure of this process, from the kernel."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def format_row(case: Case, repeats: int) -> str:
    """Measure one case and format it."""
    old, new, same = measure_times(case, repeats)
    ratio = statistics.median(a / b for a, b in zip(old, new, strict=True))
    memory = [measure_peak(case, select) for select in (select_literally, select_with_library)]
    return (
        f"| {case.tokens} | {case.width} | {case.budget} | {case.kind} | {case.batch} "
        f"| {1e3 * min(old):.1f} | {1e3 * min(new):.1f} | {ratio:.2f}x "
        f"| {'yes' if same else 'NO'} | {memory[0]:.0f} | {memory[1]:.0f} |"
    )


def main() -> None:
    """Print the table, a row as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, help="only this N")
    parser.add_argument("--kinds", default="low-rank,isotropic", help=", ".join(KINDS))
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    kinds = arguments.kinds.split(",")
    if not set(kinds) <= set(KINDS):
        parser.error(f"--kinds {arguments.kinds}: choose from {', '.join(KINDS)}")
    print(f"{torch.get_num_threads()} threads, float32, median ratio of {arguments.repeats} runs\n")
    print("| N | d | K | tokens | batch | literal ms | ours ms | faster | same indices ", end="")
    print("| literal MB | ours MB |\n|" + "---|" * 11)
    for tokens, width, budget in SIZES:
        if arguments.tokens not in (None, tokens):
            continue
        for kind in kinds:
            for batch in (1, BATCH):
                case = Case(tokens, width, budget, kind, batch)
                print(format_row(case, arguments.repeats), flush=True)


if __name__ == "__main__":
    main()
