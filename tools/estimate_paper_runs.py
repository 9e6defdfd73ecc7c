"""Estimate how long the paper's benchmarks take, from operations alone.

    python tools/estimate_paper_runs.py

Prints both tables of docs/research/reproducing.md. Nothing of it is measured: a prefill costs
2 x weights x tokens FLOPs, as in the paper's Table 7, the vision encoder comes on top, and a GPU
reaches UTILIZED of its peak. Reading data and writing answers are left out.
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
"""Operations of CLIP's large vision encoder."""


PICTURES: Final = tuple(each.name for each in PAPER_BENCHMARKS if each.shows == "image")
VIDEOS: Final = tuple(each.name for each in PAPER_BENCHMARKS if each.shows == "video")
QWEN: Final = ("GQA", "MME", "POPE", "TextVQA", "MMB", "SQA")
BUDGETS: Final = (192, 128, 64)
RESULTS: Final[dict[str, tuple[tuple[str, ...], int, list[int]]]] = {
    "Tables 1, 5: LLaVA-1.5": (PICTURES, 576, [*BUDGETS] * 13),
    "Tables 1, 5: LLaVA-Next": (PICTURES, 2880, [320] * 15),
    "Table 2: Qwen2-VL": (QWEN, 1000, [333, 222, 111] * 3),
    "Table 3: Video-LLaVA": (VIDEOS, VISUAL["video"], [136] * 4),
    "Figure 4: Kp": (("GQA", "TextVQA", "MMB", "VizWiz"), 576, [*BUDGETS] * 9),
    "Figure 5, Table 6: fold": (("GQA", "TextVQA"), 576, [*BUDGETS] * 5),
    "Figure 6: layer": (("GQA", "TextVQA"), 576, [*BUDGETS] * 11),
}
"""Of each command of the page: benchmarks, visual tokens (Qwen2-VL's depend on the image, and
1000 is a guess), and the budget of each method that runs beside the unpruned model."""


def estimate_hours(benchmark: PaperBenchmark, visual: int, left: int, speed: float) -> float:
    """On one GPU: visual tokens of the vision encoder, and those kept in the decoder."""
    tower = TOWER[benchmark.shows] * visual / VISUAL[benchmark.shows]
    operations = benchmark.questions * (2 * WEIGHTS * (left + WORDS) + tower)
    return operations / (speed * UTILIZED) / 3600


def print_results_table() -> None:
    """Print how long the commands take that give the paper's tables and figures."""
    print("| the paper's | runs | benchmarks | " + " | ".join(PROMISED) + " |")
    print("|---|---:|---:|" + "---:|" * len(PROMISED))
    for title, (names, every, budgets) in RESULTS.items():
        asked = [each for each in PAPER_BENCHMARKS if each.name in names]
        hours = [
            sum(
                estimate_hours(each, every, left, speed)
                for each in asked
                for left in (every, *budgets)
            )
            for speed in PROMISED.values()
        ]
        cells = [str(1 + len(budgets)), str(len(asked)), *map(_show, hours)]
        print(f"| {title} | " + " | ".join(cells) + " |")


def print_table() -> None:
    """Print how long each benchmark takes."""
    heads = [f"{name}, {kind}" for name in PROMISED for kind in ("unpruned", "pruned")]
    print("| benchmark | questions | " + " | ".join(heads) + " |")
    print("|---|---:|" + "---:|" * len(heads))
    totals = [0.0] * len(heads)
    for each in PAPER_BENCHMARKS:
        hours = [
            estimate_hours(each, VISUAL[each.shows], left[each.shows], speed)
            for speed in PROMISED.values()
            for left in (VISUAL, KEPT)
        ]
        totals = [one + two for one, two in zip(totals, hours, strict=True)]
        print(f"| {each.name} | {each.questions:,} | " + " | ".join(map(_show, hours)) + " |")
    count = sum(each.questions for each in PAPER_BENCHMARKS)
    print(f"| all | {count:,} | " + " | ".join(map(_show, totals)) + " |")


def _show(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"


if __name__ == "__main__":
    print_table()
    print()
    print_results_table()
