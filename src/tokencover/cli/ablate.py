"""``tokencover ablate``: accuracy by settings of MoB."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar, get_args

from tokencover.cli.evaluate import describe_part
from tokencover.cli.options import (
    METHODS,
    OUTPUT,
    AsJson,
    BatchSize,
    Budgets,
    KeepGoing,
    ModelArguments,
    Shard,
    TaskArguments,
    Threads,
    option,
    shared_options,
)
from tokencover.cli.values import (
    parse_budgets,
    parse_output_folder,
    parse_shard,
    print_json,
    split_at_commas,
)
from tokencover.errors import InputError
from tokencover.files import write_atomically
from tokencover.tables import print_table

if TYPE_CHECKING:
    from tokencover.evaluation import AblationSetting
    from tokencover.evaluation.report import Ablation

What = Literal["k-prompt", "fold", "layer"]
RESULTS: Final = "results"

Number = TypeVar("Number", int, float)

WhatChoice = Annotated[
    What,
    option(
        f"--what {'|'.join(get_args(What))}",
        "Setting to vary: Kp for each K, k for each Kp, or the pruning layer.",
    ),
]
ValuesText = Annotated[
    str | None,
    option(
        "--values LIST",
        "Values of Kp / K, k / Kp or the layer, e.g. 0,0.25,0.5 (default: the paper's).",
        METHODS,
    ),
]
PromptFraction = Annotated[
    float, option("--prompt-fraction FRACTION", "Kp / K, for --what fold.", METHODS)
]
AblationFolder = Annotated[
    Path,
    option("--out FOLDER", "Folder for results and charts.", OUTPUT, parser=parse_output_folder),
]


@shared_options(split="validation")
def ablate_settings(
    what: WhatChoice,
    source: ModelArguments,
    *,
    budgets: Budgets = "64,128,192",
    values: ValuesText = None,
    prompt_fraction: PromptFraction = 0.5,
    questions: TaskArguments,
    batch_size: BatchSize = 16,
    keep_going: KeepGoing = False,
    shard: Shard = None,
    threads: Threads = None,
    out: AblationFolder = Path("ablation"),
    as_json: AsJson = False,
) -> None:
    """Evaluate MoB with different settings."""
    from tokencover.cli.process import set_threads
    from tokencover.evaluation import (
        Combination,
        EvaluationPlan,
        GenerationSettings,
        collect,
        do_unfinished,
        load_model,
    )
    from tokencover.evaluation.lmms import describe_settings, gather_tasks
    from tokencover.evaluation.progress import open_progress
    from tokencover.evaluation.report import ABLATION_TITLES, Ablation, check_page_parts
    from tokencover.families import family_of

    check_page_parts()
    options, showing = source.parse_options(), questions.showing
    part, split, limit = parse_shard(shard, os.environ), questions.split, questions.limit
    names = questions.resolve_names(source.model)
    tasks = tuple(gather_tasks(names, split=split, limit=limit, settings=showing))
    set_threads(threads)
    model = load_model(source.model, device=source.device, dtype=source.dtype, **options)
    source.warn_about_images(names)
    model.check(tasks)
    num_layers = len(family_of(model.model).layers(model.model))
    settings = _list_settings(what, parse_budgets(budgets), values, prompt_fraction, num_layers)
    combinations = dict.fromkeys([Combination(None), *(each.combination for each in settings)])
    plan = EvaluationPlan(tuple(combinations), tasks, timed=False)
    described = {"split": split, "limit": limit, **describe_settings(tasks, showing, model)}
    asking = GenerationSettings(batch_size, questions.max_new_tokens, keep_going)
    share = plan.share(*part)
    results = do_unfinished(model, share, out / RESULTS, asking, described, 0, open_progress, part)
    if all(map(results.is_finished, plan.work)):
        rows = {row.combination: row for row in collect(plan, results)}
        groups = {task.name: task.group for task in tasks}
        ablation = Ablation(*ABLATION_TITLES[what], model.title, tuple(settings), rows, groups)
        _write(out / what, ablation, as_json)
    else:
        print(describe_part(part))


def _list_settings(
    what: What,
    budgets: Sequence[int | float],
    values: str | None,
    prompt_fraction: float,
    num_layers: int,
) -> list[AblationSetting]:
    from tokencover.evaluation import (
        FOLD_SHARES,
        PROMPT_SHARES,
        choose_layers,
        vary_folds,
        vary_layers,
        vary_prompt_budgets,
    )

    if not budgets:
        raise InputError("There is no budget. Pass for example --budgets 64,128,192.")
    if what == "layer":
        layers = _parse_values(values, int) or choose_layers(num_layers)
        wrong = [each for each in layers if not 0 <= each < num_layers]
        if wrong:
            raise InputError(
                f"--values contains layer {wrong[0]}, but this model prunes after 0 to "
                f"{num_layers - 1} of its {num_layers} layers."
            )
        return vary_layers(budgets, layers)
    fractions = _parse_values(values, float)
    if what == "fold":
        return vary_folds(budgets, fractions or FOLD_SHARES, prompt_fraction)
    return vary_prompt_budgets(budgets, fractions or PROMPT_SHARES)


def _write(folder: Path, ablation: Ablation, as_json: bool) -> None:
    from tokencover.evaluation.report import (
        export_ablation,
        make_ablation_charts,
        make_ablation_markdown,
        make_ablation_page,
        tabulate_ablation,
        write_figures,
    )

    write_atomically(folder / "ablation.md", make_ablation_markdown(ablation))
    write_atomically(folder / "ablation.html", make_ablation_page(ablation))
    write_figures(make_ablation_charts(ablation), folder, ["svg"])
    if as_json:
        print_json(export_ablation(ablation))
        return
    print_table(*tabulate_ablation(ablation))
    print(f"wrote {folder / 'ablation.html'}, and its tables and charts next to it")


def _parse_values(text: str | None, kind: Callable[[str], Number]) -> list[Number]:
    try:
        return [kind(part) for part in split_at_commas(text or "")]
    except ValueError:
        raise InputError(f"--values must be comma-separated numbers, got {text!r}.") from None
