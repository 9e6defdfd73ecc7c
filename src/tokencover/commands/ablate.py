"""``tokencover ablate``: what MoB's settings do to accuracy."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import torch

from tokencover.commands.options import add_model_options, budgets, parts
from tokencover.commands.report import write_text
from tokencover.errors import InputError
from tokencover.evaluation import (
    FOLD_SHARES,
    PROMPT_SHARES,
    AblationSetting,
    AskingSettings,
    Combination,
    EvaluationPlan,
    Progress,
    Results,
    VisionLanguageModel,
    choose_benchmark,
    choose_layers,
    collect,
    describe_run,
    evaluate,
    find_tasks,
    find_unfinished,
    load_model,
    vary_folds,
    vary_layers,
    vary_prompt_budgets,
)
from tokencover.evaluation.report import (
    Ablation,
    draw_curves,
    make_ablation_markdown,
    make_ablation_page,
)
from tokencover.runtime import family_of

WHAT: Final = {
    "k-prompt": ("The prompt's share of the budget", "Kp"),
    "fold": ("The covering fold", "k / Kp"),
    "layer": ("The pruning layer", "decoder blocks before pruning"),
}
"""Title and horizontal axis of each ablation."""
RESULTS: Final = "results"

Number = TypeVar("Number", int, float)


def add_parser(commands: Any) -> None:
    """Add the command to those of ``tokencover``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "ablate", help="try settings of MoB", description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "--what",
        choices=tuple(WHAT),
        required=True,
        help="k-prompt: Kp for each K; fold: k for each Kp; layer: where pruning happens",
    )
    add_model_options(parser)
    parser.add_argument(
        "--tasks", help="pebble, pebble-clips/when, files: see docs (default: the model's own)"
    )
    parser.add_argument("--split", default="validation", help="of pebble (default: validation)")
    parser.add_argument("--limit", type=int, help="scenes, clips, lines of a file (default: all)")
    parser.add_argument("--budgets", default="64,128,192", help="K (default: 64,128,192)")
    parser.add_argument(
        "--values", help="Kp / K, k / Kp or blocks to try: 0,0.25,0.5 (default: the paper's)"
    )
    parser.add_argument(
        "--prompt-share", type=float, default=0.5, help="Kp / K, for --what fold (default: 0.5)"
    )
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--max-new-tokens", type=int, default=16, help="length of an answer")
    parser.add_argument("--keep-going", action="store_true", help="count examples that fail")
    parser.add_argument("--threads", type=int, help="CPU threads (default: torch decides)")
    parser.add_argument(
        "--out", type=Path, default=Path("ablation"), help="folder for results and charts"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Evaluate what has not been yet, print the tables and write everything down."""
    names = parts(choose_benchmark(options.model) if options.tasks is None else options.tasks)
    tasks = tuple(find_tasks(names, split=options.split, limit=options.limit))
    if not tasks:
        raise InputError("there is nothing to ask: give --tasks pebble, say.")
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    model = load_model(options.model, device=options.device, dtype=options.dtype)
    model.check(tasks)
    settings = _settings(options, len(family_of(model.model).blocks(model.model)))
    made = (Combination(None), *(each.combination for each in settings))
    plan = EvaluationPlan(tuple(dict.fromkeys(made)), tasks, timed=False)
    rows = collect(plan, _evaluated(options, model, plan))
    title, axis = WHAT[options.what]
    ablation = Ablation(
        title,
        axis,
        model.name,
        tuple(settings),
        {row.combination: row for row in rows},
        {task.name: task.group for task in tasks},
    )
    _write(options.out / options.what, ablation)


def _settings(options: argparse.Namespace, depth: int) -> list[AblationSetting]:
    wanted = budgets(options.budgets)
    if not wanted:
        raise InputError("there is no budget: give --budgets 64,128,192 say.")
    if options.what == "layer":
        return vary_layers(wanted, _values(options, int) or choose_layers(depth))
    if options.what == "fold":
        return vary_folds(wanted, _values(options, float) or FOLD_SHARES, options.prompt_share)
    return vary_prompt_budgets(wanted, _values(options, float) or PROMPT_SHARES)


def _evaluated(
    options: argparse.Namespace, model: VisionLanguageModel, plan: EvaluationPlan
) -> Results:
    described = describe_run(
        model,
        split=options.split,
        limit=options.limit,
        batch_size=options.batch_size,
        max_new_tokens=options.max_new_tokens,
    )
    asking = AskingSettings(options.batch_size, options.max_new_tokens, options.keep_going)
    results = Results.open(options.out / RESULTS, described)
    work = find_unfinished(plan.work, results)
    progress = Progress(sys.stderr, len(work))
    if len(work) < len(plan.work):
        progress.note(f"{len(plan.work) - len(work)} of {len(plan.work)} are done already")
    try:
        evaluate(model, work, results, asking, progress, timing_batches=0)
    finally:
        progress.close()
    return results


def _write(folder: Path, ablation: Ablation) -> None:
    text = make_ablation_markdown(ablation)
    write_text(folder / "ablation.md", text)
    write_text(folder / "ablation.html", make_ablation_page(ablation))
    for name, chart in draw_curves(ablation).items():
        write_text(folder / name, chart + "\n")
    print(text)
    print(f"wrote {folder / 'ablation.html'}, and its tables and charts beside it")


def _values(options: argparse.Namespace, kind: Callable[[str], Number]) -> list[Number]:
    try:
        return [kind(part) for part in parts(options.values or "")]
    except ValueError:
        raise InputError(
            f"--values takes numbers with commas between, got {options.values!r}."
        ) from None
