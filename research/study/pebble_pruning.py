"""Does the benchmark bite? Accuracy with visual tokens dropped after one block.

Five simple methods, run with plain hooks on the stock forward:

    python -m research.study.pebble_pruning --split test --budgets 192 128 64 32
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from research.study.answer_tables import Cells, average_kinds, compare_tables, make_table
from research.study.plain_pruning import SELECTORS, Sight, answer, make_selector
from tokencover_models.pebble import load_pebble
from tokencover_models.pebble.data import COARSE, FINE, SCENE_QUESTIONS, make_examples

KINDS = SCENE_QUESTIONS.kinds


def main() -> None:
    """Run every method at every budget, and print as it goes."""
    options = _read_options()
    torch.set_num_threads(1)
    model, processor = load_pebble(options.checkpoint)
    asked = list(make_examples(options.split, options.scenes))
    sight = Sight(model, processor)
    whole = make_table(answer(model, processor, asked, sight=sight), KINDS)
    _print_line("unpruned", whole, whole)
    for budget in options.budgets:
        for method in options.methods:
            start = time.monotonic()
            shares = options.prompt_shares if method == "mob" else [None]
            for share in shares:
                part = None if share is None else round(share * budget)
                fold = None if part is None else max(1, round(part / 8))
                selector = make_selector(method, budget, prompt_budget=part, fold=fold)
                results = answer(
                    model, processor, asked, selector, after=options.after, sight=sight
                )
                name = f"{method}-{budget}" + ("" if share is None else f"-{share:g}")
                _print_line(name, make_table(results, KINDS), whole, time.monotonic() - start)


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--checkpoint", type=Path, help="folder; by default the shipped model")
    parser.add_argument("--split", default="test", choices=("test", "validation"))
    parser.add_argument("--scenes", type=int, help="by default the whole split")
    parser.add_argument("--budgets", type=int, nargs="+", default=[192, 128, 64, 32])
    parser.add_argument("--methods", nargs="+", default=list(SELECTORS), choices=SELECTORS)
    parser.add_argument("--after", type=int, default=1, help="blocks that run before pruning")
    parser.add_argument(
        "--prompt-shares",
        type=float,
        nargs="+",
        default=[None],
        help="Kp/K of MoB, with k = Kp/8; by default the paper's table",
    )
    return parser.parse_args()


def _print_line(name: str, cells: Cells, whole: Cells, seconds: float | None = None) -> None:
    shares = np.nanmean(cells, axis=0)
    families = SCENE_QUESTIONS.families
    fine, coarse = (
        100 * np.mean([shares[i] for i, kind in enumerate(KINDS) if families[kind] == family])
        for family in (FINE, COARSE)
    )
    loss = compare_tables(whole, cells)
    each = " ".join(f"{kind}:{100 * share:.0f}" for kind, share in zip(KINDS, shares, strict=True))
    print(
        f"{name:18} {100 * average_kinds(cells):5.1f} fine {fine:5.1f} coarse {coarse:5.1f}  "
        f"loses {100 * loss.mean:.1f} [{100 * loss.low:.1f}, {100 * loss.high:.1f}]  {each}"
        + (f"  ({seconds:.0f} s)" if seconds is not None else ""),
        flush=True,
    )


if __name__ == "__main__":
    main()
