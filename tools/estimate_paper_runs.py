"""Estimate how long the paper's benchmarks take, from operations alone.

    python tools/estimate_paper_runs.py

Prints the table of docs/reproducing.md. Nothing of it is measured: operations of a prefill are
2 x weights x tokens, as in the paper's Table 7, those of the vision tower come on top, and a GPU is
taken to do UTILIZED of what its maker promises. Reading data and writing answers are left out.
"""

from __future__ import annotations

from typing import Final

from tokencover.evaluation.lmms import PAPER_BENCHMARKS, PaperBenchmark

PROMISED: Final = {"A100": 312e12, "RTX 4090": 165e12}
"""Operations a second in bfloat16."""
UTILIZED: Final = 0.4
WEIGHTS: Final = 7.0e9
WORDS: Final = 60
"""Tokens of a prompt's text."""
VISUAL: Final = {"image": 576, "video": 8 * 257}
"""Visual tokens of LLaVA-1.5 and of Video-LLaVA."""
KEPT: Final = {"image": 64, "video": 136}
"""The paper's smallest budgets."""
TOWER: Final = {"image": 2 * 0.30e9 * 577, "video": 8 * 2 * 0.30e9 * 257}
"""Operations of CLIP's large vision tower."""


def estimate_operations(benchmark: PaperBenchmark, pruned: bool) -> float:
    """Of all questions of a benchmark."""
    tokens = (KEPT if pruned else VISUAL)[benchmark.shows] + WORDS
    return benchmark.questions * (2 * WEIGHTS * tokens + TOWER[benchmark.shows])


def print_table() -> None:
    """Print it as Markdown."""
    heads = [f"{name}, {kind}" for name in PROMISED for kind in ("unpruned", "pruned")]
    print("| benchmark | questions | " + " | ".join(heads) + " |")
    print("|---|---:|" + "---:|" * len(heads))
    totals = [0.0] * len(heads)
    for each in PAPER_BENCHMARKS:
        hours = [
            estimate_operations(each, pruned) / (speed * UTILIZED) / 3600
            for speed in PROMISED.values()
            for pruned in (False, True)
        ]
        totals = [one + two for one, two in zip(totals, hours, strict=True)]
        print(f"| {each.name} | {each.questions:,} | " + " | ".join(map(_show, hours)) + " |")
    count = sum(each.questions for each in PAPER_BENCHMARKS)
    print(f"| all | {count:,} | " + " | ".join(map(_show, totals)) + " |")


def _show(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"


if __name__ == "__main__":
    print_table()
