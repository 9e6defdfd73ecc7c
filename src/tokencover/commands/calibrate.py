"""``tokencover calibrate``: how strongly prompts and pictures are coupled in a model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from tokencover.budget import Profile
from tokencover.commands.options import add_model_options
from tokencover.errors import InputError
from tokencover.evaluation import (
    Progress,
    calibrate,
    choose_benchmark,
    find_tasks,
    load_model,
)

INTERRUPTED = 130
"""Exit code of a command that was stopped by Ctrl-C, as shells have it."""
HEIGHTS = " ▁▂▃▄▅▆▇█"


def add_parser(commands: Any) -> None:
    """Add the command to those of ``tokencover``."""
    parser = commands.add_parser(
        "calibrate",
        help="find the threshold between strong and weak coupling",
        description=__doc__,
        allow_abbrev=False,
    )
    add_model_options(parser)
    parser.add_argument(
        "--data",
        nargs="+",
        help="pebble, pebble-clips/when, files: see docs (default: the model's own)",
    )
    parser.add_argument("--split", default="validation", help="of pebble: validation or test")
    parser.add_argument("--limit", type=int, help="scenes, clips, lines of a file (default: all)")
    parser.add_argument("--after", type=int, default=1, help="decoder blocks before (default: 1)")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("profile.json"), help="the profile")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Measure, tell what was found, and save the profile."""
    names = options.data or [choose_benchmark(options.model)]
    tasks = find_tasks(names, split=options.split, limit=options.limit)
    if options.out.is_dir():
        raise InputError(f"--out {options.out} is a folder: give a file, profile.json say.")
    model = load_model(options.model, device=options.device, dtype=options.dtype)
    model.check(tasks)
    record = options.out.with_suffix(".batches.jsonl")
    progress = Progress(sys.stderr, len(tasks))
    try:
        profile, without = calibrate(
            model,
            tasks,
            record,
            progress,
            split=options.split,
            after=options.after,
            batch_size=options.batch_size,
        )
    except KeyboardInterrupt:
        progress.note(f"stopped; what is done is kept in {record}, the same command goes on")
        sys.exit(INTERRUPTED)
    finally:
        progress.close()
    profile.save(options.out)
    print(shown(profile))
    if without:
        print(f"{without} samples have no words or no picture; they were left out")
    print(f"saved to {options.out}: tc.MoB(budget, split=tc.CouplingSplit({str(options.out)!r}))")


def shown(profile: Profile) -> str:
    """The distribution as text: a row of bars for each task, and whether there are two groups."""
    names = [task.name for task in profile.tasks]
    width = max(map(len, [*names, "all"]))
    low, high = profile.edges[0], profile.edges[-1]
    scale = f"{low:.3f}".ljust(len(profile.histogram) - 5) + f"{high:.3f}"
    lines = [f"{'':<{width}}  {'count':>6} {'mean':>6} {'dev.':>6}  {scale}"]
    for task in profile.tasks:
        numbers = f"{task.count:>6} {task.mean:>6.3f} {task.deviation:>6.3f}"
        lines.append(f"{task.name:<{width}}  {numbers}  {bars(task.histogram)}")
    lines.append(f"{'all':<{width}}  {profile.count:>6} {'':>13}  {bars(profile.histogram)}")
    if profile.tau is not None:
        place = int((profile.tau - low) / (high - low) * len(profile.histogram))
        lines.append(f"{'':<{width}}  {'':>20}  {' ' * place}^ tau = {profile.tau:.4f}")
    return "\n".join([*lines, verdict(profile)])


def bars(histogram: tuple[int, ...]) -> str:
    """One character a bin; every bin that is not empty shows."""
    most = max(histogram)
    steps = len(HEIGHTS) - 1
    return "".join(HEIGHTS[-(-count * steps // most) if most else 0] for count in histogram)


def verdict(profile: Profile) -> str:
    """Whether there are two groups, in a sentence."""
    if not profile.separated:
        return (
            f"NOT SEPARATED: {profile.objection}. A threshold would be arbitrary; CouplingSplit "
            "will use the table without a prior."
        )
    return (
        f"Two groups: {profile.strong_share:.0%} strong (eta up to tau), "
        f"{1 - profile.strong_share:.0%} weak; the valley between them is {profile.valley:.0%} "
        f"deep, the groups explain {profile.explained:.0%} of the variance."
    )
