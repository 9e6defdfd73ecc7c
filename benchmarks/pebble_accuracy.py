"""How well Pebble answers, type by type, and how well it guesses from a blank picture.

python benchmarks/pebble_accuracy.py --split test
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import torch
from PIL import Image

from tokencover.pebble.benchmark import Example, examples
from tokencover.pebble.loader import load_pebble
from tokencover.pebble.probing import accuracy, answers
from tokencover.pebble.questions import FAMILIES, KINDS


def main() -> None:
    """Print one line a type and write the numbers when asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, help="folder; by default the shipped model")
    parser.add_argument("--split", default="test", choices=("test", "validation"))
    parser.add_argument("--scenes", type=int, help="by default the whole split")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, processor = load_pebble(options.checkpoint)
    asked = list(examples(options.split, options.scenes))
    seen = accuracy(answers(model, processor, asked))
    blank = Image.new("RGB", asked[0].picture.size, (127, 127, 127))
    blind = accuracy(answers(model, processor, [replace(e, picture=blank) for e in asked]))
    frequent = _most_frequent(asked)
    counts = Counter(example.kind for example in asked)
    print(f"{'type':14} {'family':7} {'asked':>6} {'right':>7} {'blank':>7} {'best guess':>11}")
    for kind in KINDS:
        shares = (seen[kind], blind[kind], frequent[kind])
        right, guessed, best = (f"{100 * share:.1f}" for share in shares)
        print(f"{kind:14} {FAMILIES[kind]:7} {counts[kind]:6} {right:>7} {guessed:>7} {best:>11}")
    means = [sum(values.values()) / len(values) for values in (seen, blind, frequent)]
    right, guessed, best = (f"{100 * mean:.1f}" for mean in means)
    print(f"{'average':14} {'':7} {len(asked):6} {right:>7} {guessed:>7} {best:>11}")
    if options.json:
        numbers = {"asked": counts, "right": seen, "blank": blind, "best_guess": frequent}
        options.json.write_text(json.dumps(numbers, indent=1) + "\n")


def _most_frequent(asked: list[Example]) -> dict[str, float]:
    """Share of the most frequent answer of each type: what a constant guess would reach."""
    tallies: dict[str, Counter[str]] = defaultdict(Counter)
    for example in asked:
        tallies[example.kind][example.answer] += 1
    return {kind: max(tally.values()) / tally.total() for kind, tally in tallies.items()}


if __name__ == "__main__":
    main()
