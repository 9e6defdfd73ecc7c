"""The course of a run, from its log: percent right of each kind, for every so many steps."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from tokencover_models.pebble.data import SCENE_QUESTIONS

COLUMNS: Final = ("exist", "pair", "single", "phrase", *SCENE_QUESTIONS.kinds[1:])
Line = dict[str, Any]


def cut(lines: list[Line], steps: int) -> Iterator[list[Line]]:
    """Runs of at most so many steps of one stage."""
    for _, group in groupby(lines, key=lambda line: line["stage"]):
        stage = list(group)
        yield from (stage[start : start + steps] for start in range(0, len(stage), steps))


def format_fraction(lines: list[Line], kind: str) -> str:
    """Percent right of a kind, or a dash where it was not asked."""
    right = sum(line[kind][0] for line in lines if kind in line)
    asked = sum(line[kind][1] for line in lines if kind in line)
    return f"{100 * right / asked:.0f}" if asked else "-"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, default=Path("runs/boulder/log.jsonl"))
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    lines = [json.loads(line) for line in arguments.log.read_text("utf-8").splitlines()]
    print("| stage | to step | minutes | asked | " + " | ".join(COLUMNS) + " |")
    print("|---|" + "---:|" * (3 + len(COLUMNS)))
    for part in cut(lines, arguments.steps):
        last, asked = part[-1], sum(line["exist"][1] for line in part)
        shares = " | ".join(format_fraction(part, kind) for kind in COLUMNS)
        print(f"| {last['stage']} | {last['step']} | {last['minutes']:.1f} | {asked} | {shares} |")


if __name__ == "__main__":
    main()
