"""``tokencover ablate``: what MoB's settings do to accuracy."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar, get_args

from tokencover.cli.benchmark_options import (
    FrameCount,
    Pad,
    PromptWordsChoice,
    SuiteName,
    choose_task_names,
)
from tokencover.cli.evaluate import Shard, read_shard, tell_part
from tokencover.cli.model_family import warn_about_images
from tokencover.cli.options import (
    METHODS,
    OUTPUT,
    AnswerLength,
    Attention,
    BatchSize,
    Budgets,
    Device,
    Dtype,
    JsonInstead,
    KeepGoing,
    Limit,
    ModelName,
    ModelOptions,
    Quantization,
    SplitName,
    TaskNames,
    Threads,
    choose_from,
    print_json,
    read_budgets,
    read_model_options,
    read_new_folder,
    read_number,
    split_at_commas,
    take,
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
    take(
        "--what",
        "|".join(get_args(What)),
        "k-prompt: Kp for each K; fold: k for each Kp; layer: where pruning happens.",
        read=choose_from(*get_args(What)),
    ),
]
ValuesText = Annotated[
    str | None,
    take(
        "--values",
        "LIST",
        "Kp / K, k / Kp or blocks to try: 0,0.25,0.5 (default: the paper's).",
        METHODS,
    ),
]
PromptShare = Annotated[
    float,
    take("--prompt-share", "SHARE", "Kp / K, for --what fold.", METHODS, read=read_number),
]
AblationFolder = Annotated[
    Path,
    take("--out", "FOLDER", "Folder for results and charts.", OUTPUT, read=read_new_folder),
]


def try_settings(
    what: WhatChoice,
    model: ModelName = "pebble",
    dtype: Dtype = None,
    device: Device = None,
    quantization: Quantization = None,
    attention: Attention = None,
    model_options: ModelOptions = None,
    budgets: Budgets = "64,128,192",
    values: ValuesText = None,
    prompt_share: PromptShare = 0.5,
    tasks: TaskNames = None,
    suite: SuiteName = None,
    split: SplitName = "validation",
    limit: Limit = None,
    prompt_words: PromptWordsChoice = "question",
    pad: Pad = False,
    frames: FrameCount = 8,
    max_new_tokens: AnswerLength = 16,
    batch_size: BatchSize = 16,
    keep_going: KeepGoing = False,
    shard: Shard = None,
    threads: Threads = None,
    out: AblationFolder = Path("ablation"),
    as_json: JsonInstead = False,
) -> None:
    """Try settings of MoB, and see what they do to accuracy."""
    from tokencover.cli.threads import set_threads
    from tokencover.evaluation import (
        Combination,
        EvaluationPlan,
        GenerationSettings,
        collect,
        do_unfinished,
        load_model,
    )
    from tokencover.evaluation.lmms import ShowingSettings, describe_settings, gather_tasks
    from tokencover.evaluation.progress import open_progress
    from tokencover.evaluation.report import ABLATION_TITLES, Ablation, check_page_parts
    from tokencover.families import family_of

    check_page_parts()
    options = read_model_options(quantization, attention, model_options)
    showing, part = ShowingSettings(prompt_words, pad, frames), read_shard(shard, os.environ)
    names = choose_task_names(model, tasks, suite)
    found = tuple(gather_tasks(names, split=split, limit=limit, settings=showing))
    set_threads(threads)
    loaded = load_model(model, device=device, dtype=dtype, **options)
    warn_about_images(model, names)
    loaded.check(found)
    depth = len(family_of(loaded.model).layers(loaded.model))
    settings = _choose_settings(what, read_budgets(budgets), values, prompt_share, depth)
    wanted = dict.fromkeys([Combination(None), *(each.combination for each in settings)])
    plan = EvaluationPlan(tuple(wanted), found, timed=False)
    described = {"split": split, "limit": limit, **describe_settings(found, showing, loaded)}
    asking, share = GenerationSettings(batch_size, max_new_tokens, keep_going), plan.share(*part)
    results = do_unfinished(loaded, share, out / RESULTS, asking, described, 0, open_progress, part)
    if all(map(results.is_finished, plan.work)):
        rows = {row.combination: row for row in collect(plan, results)}
        groups = {task.name: task.group for task in found}
        ablation = Ablation(*ABLATION_TITLES[what], loaded.title, tuple(settings), rows, groups)
        _write(out / what, ablation, as_json)
    else:
        print(tell_part(part))


def _choose_settings(
    what: What,
    budgets: Sequence[int | float],
    values: str | None,
    prompt_share: float,
    depth: int,
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
        raise InputError("there is no budget: give for example --budgets 64,128,192.")
    if what == "layer":
        layers = _read_values(values, int) or choose_layers(depth)
        wrong = [each for each in layers if not 0 <= each < depth]
        if wrong:
            raise InputError(
                f"--values has layer {wrong[0]}, and this model prunes after 0 to {depth - 1} of "
                f"its {depth} layers."
            )
        return vary_layers(budgets, layers)
    shares = _read_values(values, float)
    if what == "fold":
        return vary_folds(budgets, shares or FOLD_SHARES, prompt_share)
    return vary_prompt_budgets(budgets, shares or PROMPT_SHARES)


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
    print(f"wrote {folder / 'ablation.html'}, and its tables and charts beside it")


def _read_values(text: str | None, kind: Callable[[str], Number]) -> list[Number]:
    try:
        return [kind(part) for part in split_at_commas(text or "")]
    except ValueError:
        raise InputError(f"--values takes numbers with commas between, got {text!r}.") from None
