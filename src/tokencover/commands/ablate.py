"""``tokencover ablate``: what MoB's settings do to accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar

from tokencover.commands.options import (
    METHODS,
    OUTPUT,
    AnswerLength,
    BatchSize,
    Budgets,
    Device,
    Dtype,
    JsonInstead,
    KeepGoing,
    Limit,
    ModelName,
    SplitName,
    TaskNames,
    Threads,
    choose_from,
    print_json,
    read_budgets,
    read_number,
    split_at_commas,
    take,
)
from tokencover.commands.report import write_text
from tokencover.errors import InputError
from tokencover.tables import print_markdown

if TYPE_CHECKING:
    from tokencover.evaluation import AblationSetting
    from tokencover.evaluation.report import Ablation

What = Literal["k-prompt", "fold", "layer"]
TITLES: Final[dict[What, tuple[str, str]]] = {
    "k-prompt": ("The prompt's share of the budget", "Kp"),
    "fold": ("The covering fold", "k / Kp"),
    "layer": ("The pruning layer", "decoder blocks before pruning"),
}
"""Title and horizontal axis of each ablation."""
RESULTS: Final = "results"

Number = TypeVar("Number", int, float)


WhatChoice = Annotated[
    What,
    take(
        "--what",
        "|".join(TITLES),
        "k-prompt: Kp for each K; fold: k for each Kp; layer: where pruning happens.",
        read=choose_from(*TITLES),
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
    take("--out", "FOLDER", "Folder for results and charts.", OUTPUT),
]


def try_settings(
    what: WhatChoice,
    model: ModelName = "pebble",
    dtype: Dtype = None,
    device: Device = None,
    budgets: Budgets = "64,128,192",
    values: ValuesText = None,
    prompt_share: PromptShare = 0.5,
    tasks: TaskNames = None,
    split: SplitName = "validation",
    limit: Limit = None,
    max_new_tokens: AnswerLength = 16,
    batch_size: BatchSize = 16,
    keep_going: KeepGoing = False,
    threads: Threads = None,
    out: AblationFolder = Path("ablation"),
    as_json: JsonInstead = False,
) -> None:
    """Try settings of MoB, and see what they do to accuracy."""
    from tokencover.commands.progress_bar import open_progress
    from tokencover.commands.threads import set_threads
    from tokencover.evaluation import (
        AskingSettings,
        Combination,
        EvaluationPlan,
        choose_benchmark,
        collect,
        do_unfinished,
        find_tasks,
        load_model,
    )
    from tokencover.evaluation.report import Ablation
    from tokencover.runtime import family_of

    names = split_at_commas(choose_benchmark(model) if tasks is None else tasks)
    found = tuple(find_tasks(names, split=split, limit=limit))
    if not found:
        raise InputError("there is nothing to ask: give for example --tasks pebble.")
    set_threads(threads)
    loaded = load_model(model, device=device, dtype=dtype)
    loaded.check(found)
    depth = len(family_of(loaded.model).blocks(loaded.model))
    settings = _choose_settings(what, read_budgets(budgets), values, prompt_share, depth)
    wanted = (Combination(None), *(each.combination for each in settings))
    plan = EvaluationPlan(tuple(dict.fromkeys(wanted)), found, timed=False)
    asking = AskingSettings(batch_size, max_new_tokens, keep_going)
    examples = {"split": split, "limit": limit}
    results = do_unfinished(loaded, plan.work, out / RESULTS, asking, examples, 0, open_progress)
    title, axis = TITLES[what]
    ablation = Ablation(
        title,
        axis,
        loaded.name,
        tuple(settings),
        {row.combination: row for row in collect(plan, results)},
        {task.name: task.group for task in found},
    )
    _write(out / what, ablation, as_json)


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
        return vary_layers(budgets, _read_values(values, int) or choose_layers(depth))
    shares = _read_values(values, float)
    if what == "fold":
        return vary_folds(budgets, shares or FOLD_SHARES, prompt_share)
    return vary_prompt_budgets(budgets, shares or PROMPT_SHARES)


def _write(folder: Path, ablation: Ablation, as_json: bool) -> None:
    from tokencover.evaluation.report import (
        draw_curves,
        export_ablation,
        make_ablation_markdown,
        make_ablation_page,
    )

    text = make_ablation_markdown(ablation)
    write_text(folder / "ablation.md", text)
    write_text(folder / "ablation.html", make_ablation_page(ablation))
    for name, chart in draw_curves(ablation).items():
        write_text(folder / name, chart + "\n")
    if as_json:
        print_json(export_ablation(ablation))
        return
    print_markdown(text)
    print(f"wrote {folder / 'ablation.html'}, and its tables and charts beside it")


def _read_values(text: str | None, kind: Callable[[str], Number]) -> list[Number]:
    try:
        return [kind(part) for part in split_at_commas(text or "")]
    except ValueError:
        raise InputError(f"--values takes numbers with commas between, got {text!r}.") from None
