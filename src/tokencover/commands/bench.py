"""``tokencover bench``: what pruning saves, measured; or the paper's table of costs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tokencover.commands.options import add_model_options, budgets
from tokencover.errors import InputError
from tokencover.methods import make_method, parse_methods


def add_parser(commands: Any) -> None:
    """Add the command to those of the command line."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "bench", help="measure what pruning saves: time, memory, operations"
    )
    parser.add_argument(
        "--paper", action="store_true", help="print the paper's table of costs beside ours instead"
    )
    add_model_options(parser)
    parser.add_argument(
        "--methods",
        default="mob,fastv",
        help="names, with settings if need be: mob,fastv:after=3 (default: mob,fastv)",
    )
    parser.add_argument(
        "--budgets", default="64,192", help="counts or shares, 64 or 0.111 (default: 64,192)"
    )
    parser.add_argument("--image", type=Path, help="a picture (default: pebble's scenes or clips)")
    parser.add_argument("--question", help="what to ask about it")
    parser.add_argument("--tokens-out", type=int, default=16, help="length of an answer")
    parser.add_argument("--repeats", type=int, default=5, help="turns that count (default: 5)")
    parser.add_argument("--batch-size", type=int, default=1, help="samples in one pass")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Measure or compute, and print."""
    text, data = _paper() if options.paper else _measure(options)
    print(text)
    if options.json is not None:
        options.json.write_text(json.dumps(data, indent=2) + "\n")


def _paper() -> tuple[str, Any]:
    from tokencover.efficiency import compute_paper_costs, export_paper_costs, format_paper_costs

    costs = compute_paper_costs()
    return format_paper_costs(costs), export_paper_costs(costs)


def _measure(options: argparse.Namespace) -> tuple[str, Any]:
    from tokencover.efficiency import (
        export_savings,
        format_savings,
        make_workload,
        measure_savings,
        pick_bundled_questions,
        read_own_picture,
    )
    from tokencover.loading import load

    if options.batch_size < 1:
        raise InputError(f"--batch-size must be at least 1, got {options.batch_size}.")
    methods = [
        make_method({**spec, "budget": budget})
        for spec in parse_methods(options.methods)
        for budget in budgets(options.budgets)
    ]
    count, question = options.batch_size, options.question
    own = None if options.image is None else read_own_picture(options.image, question, count)
    model, processor = load(options.model, device=options.device, dtype=options.dtype)
    questions = own or pick_bundled_questions(processor, count, question)
    workload = make_workload(options.model, model, processor, questions)
    found = measure_savings(
        workload, methods, tokens_out=options.tokens_out, repeats=options.repeats
    )
    return format_savings(found), export_savings(found)
