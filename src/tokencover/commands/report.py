"""``tokencover report``: a folder of results as a page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tokencover.budget import Profile
from tokencover.commands.options import parts
from tokencover.errors import InputError
from tokencover.evaluation import (
    StoredResults,
    describe_run,
    find_tasks,
    load_model,
    read_folder,
)
from tokencover.evaluation.report import (
    choose_method,
    draw_kept_pictures,
    make_markdown,
    make_page,
)
from tokencover.files import write_atomically


def add_parser(commands: Any) -> None:
    """Add the command to those of ``tokencover``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "report", help="turn results into a page", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("results", type=Path, help="the --out of `tokencover evaluate`")
    parser.add_argument(
        "--out", type=Path, default=Path("report.html"), help="the page (default: report.html)"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write Markdown tables too")
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="FILE",
        help="show the coupling `tokencover calibrate` found",
    )
    parser.add_argument("--reference", default="mob", help="who is compared with (default: mob)")
    parser.add_argument(
        "--pictures",
        type=int,
        default=0,
        metavar="N",
        help="let the model look at N examples again, and draw what was kept (default: 0)",
    )
    parser.add_argument(
        "--tasks", help="where those examples are, as for `evaluate` (default: pebble's)"
    )
    parser.add_argument("--device", help="to look at them again: cuda:1, cpu, or auto")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Read everything first, so that nothing is written if something is wrong."""
    stored = read_folder(options.results)
    profile = None if options.profile is None else Profile.load(options.profile)
    pictures = _pictures(options, stored) if options.pictures else []
    text = make_page(stored, reference=options.reference, profile=profile, pictures=pictures)
    write_text(options.out, text)
    print(f"wrote {options.out}")
    if options.markdown is not None:
        write_text(options.markdown, make_markdown(stored, options.reference))
        print(f"wrote {options.markdown}")


def _pictures(options: argparse.Namespace, stored: StoredResults) -> list[str]:
    if options.pictures < 0:
        raise InputError(f"--pictures must be 0 or more, got {options.pictures}.")
    names = parts(options.tasks) if options.tasks else list(stored.groups)
    method = choose_method(stored, options.reference)
    settings = stored.run["settings"]
    tasks = find_tasks(names, split=settings["split"], limit=settings["limit"])
    measured = stored.run["model"]
    model = load_model(stored.model, device=options.device, dtype=measured["dtype"])
    model.check(tasks)
    weights = describe_run(model)["model"]["weights"]
    if weights != measured["weights"]:
        raise InputError(
            f"the model {stored.model!r} has other weights now than when it was evaluated: leave "
            "--pictures away, or evaluate again."
        )
    return draw_kept_pictures(model, method, tasks, options.pictures)


def write_text(path: Path, text: str) -> None:
    """Write a file, and the folders above it if need be."""
    try:
        write_atomically(path, text)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error}. Give another place.") from error
