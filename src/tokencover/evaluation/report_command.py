"""``tokencover report``: a folder of results as a page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tokencover.budget.profile import Profile
from tokencover.errors import InputError
from tokencover.evaluation.reporting.markdown import markdown
from tokencover.evaluation.reporting.page import page
from tokencover.evaluation.reporting.stored import read_folder


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
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Read everything first, so that nothing is written if something is wrong."""
    stored = read_folder(options.results)
    profile = None if options.profile is None else Profile.load(options.profile)
    write_text(options.out, page(stored, reference=options.reference, profile=profile))
    print(f"wrote {options.out}")
    if options.markdown is not None:
        write_text(options.markdown, markdown(stored, options.reference))
        print(f"wrote {options.markdown}")


def write_text(path: Path, text: str) -> None:
    """Write a file, and the folders above it if need be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error}. Give another place.") from error
