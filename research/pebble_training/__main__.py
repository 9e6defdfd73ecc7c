"""Train pebble: `python -m research.pebble_training --out DIR [--clips] [--resume]`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from research.pebble_training import run_training


def make_parser() -> argparse.ArgumentParser:
    """Options of the command."""
    parser = argparse.ArgumentParser(prog="python -m research.pebble_training", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for state, log and model")
    parser.add_argument("--seed", type=int, default=0, help="of weights and scenes (default 0)")
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--clips", action="store_true", help="train the model for videos instead")
    parser.add_argument("--start", type=Path, help="checkpoint that `--clips` starts from")
    parser.add_argument("--resume", action="store_true", help="continue from the state in --out")
    return parser


def run(options: argparse.Namespace) -> None:
    """Train with the options of the command."""
    run_training(
        options.out,
        clips=options.clips,
        seed=options.seed,
        workers=options.workers,
        resume=options.resume,
        start=options.start,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    run(make_parser().parse_args(arguments))


if __name__ == "__main__":
    main()
