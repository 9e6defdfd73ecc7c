"""What several commands of the command line share."""

from __future__ import annotations

import argparse

from tokencover.budget import Budget
from tokencover.errors import InputError


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Which model, and how it is loaded."""
    parser.add_argument(
        "--model", default="pebble", help="pebble, pebble-clips, a folder or hub name"
    )
    parser.add_argument("--dtype", help="of the weights, bfloat16 say (default: the checkpoint's)")
    parser.add_argument("--device", help="cuda:1, cpu, or auto for all GPUs (default: one GPU)")


def parts(text: str) -> list[str]:
    """What stands between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def budget(text: str, option: str = "--budget") -> Budget:
    """A count, or a share if it has a point."""
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise InputError(f"{option} takes a count (64) or a share (0.111), got {text!r}.") from None


def budgets(text: str) -> list[Budget]:
    """Budgets from "64,0.111"."""
    return [budget(part, "--budgets") for part in parts(text)]
