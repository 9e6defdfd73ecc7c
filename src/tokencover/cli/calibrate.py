"""``tokencover calibrate``: the coupling of prompts and images in a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tokencover.cli.options import (
    OUTPUT,
    AsJson,
    BatchSize,
    Limit,
    ModelArguments,
    SplitName,
    TaskNames,
    Threads,
    option,
    shared_options,
)
from tokencover.cli.values import parse_output_file, parse_task_names, print_json
from tokencover.files import read_object
from tokencover.tables import TextTable, print_text

if TYPE_CHECKING:
    from tokencover.budget import Profile

HEIGHTS: Final = " ▁▂▃▄▅▆▇█"

MoreNames = Annotated[list[str] | None, typer.Argument(metavar="TASK", hidden=True)]
"""Further tasks without commas, `--data mine.jsonl other.jsonl`."""


@shared_options()
def measure_coupling(
    more: MoreNames = None,
    *,
    source: ModelArguments,
    tasks: TaskNames = None,
    split: SplitName = "validation",
    limit: Limit = None,
    after: Annotated[int, option("--after N", "Decoder layers before the measurement.")] = 1,
    batch_size: BatchSize = 8,
    threads: Threads = None,
    out: Annotated[
        Path, option("--out FILE", "File for the profile.", OUTPUT, parser=parse_output_file)
    ] = Path("profile.json"),
    as_json: AsJson = False,
) -> None:
    """Measure the threshold between strong and weak coupling."""
    from tokencover.bundled_models import get_default_tasks
    from tokencover.cli.process import set_threads
    from tokencover.evaluation import (
        calibrate,
        check_files,
        load_model,
        load_tasks,
    )
    from tokencover.evaluation.progress import open_progress

    options = source.parse_options()
    values = None if tasks is None and not more else [*(tasks or []), *(more or [])]
    names = parse_task_names(values) or [get_default_tasks(source.model)]
    loaded_tasks = load_tasks(names, split=split, limit=limit)
    for task in loaded_tasks:
        if Path(task.source).is_file():
            check_files(task)
    set_threads(threads)
    model = load_model(source.model, device=source.device, dtype=source.dtype, **options)
    model.check(loaded_tasks)
    record = out.with_suffix(".batches.jsonl")
    progress = open_progress(len(loaded_tasks))
    try:
        profile, without = calibrate(
            model, loaded_tasks, record, progress, split=split, after=after, batch_size=batch_size
        )
    except KeyboardInterrupt:
        progress.note(f"finished batches are in {record}: the same command resumes there")
        raise
    finally:
        progress.close()
    profile.save(out)
    if as_json:
        print_json({**read_object(out), "without_words_or_picture": without})
        return
    print_text(describe_profile(profile))
    if without:
        print(f"{without} samples without prompt tokens or image were excluded")
    print_text(f"saved to {out}: tc.MoB(budget, split=tc.CouplingSplit({str(out)!r}))")


def describe_profile(profile: Profile) -> str:
    """Format the distribution: a row of bars per task, and whether there are two groups."""
    low, high = profile.edges[0], profile.edges[-1]
    scale = f"{low:.3f}".ljust(len(profile.histogram) - 5) + f"{high:.3f}"
    benchmarks = {task.name.rpartition("/")[0] for task in profile.tasks}
    shared = benchmarks.pop() if len(benchmarks) == 1 else ""
    rows = [
        (
            task.name.removeprefix(f"{shared}/"),
            str(task.count),
            f"{task.mean:.3f}",
            f"{task.deviation:.3f}",
            draw_bars(task.histogram),
        )
        for task in profile.tasks
    ]
    rows.append(("all", str(profile.count), "", "", draw_bars(profile.histogram)))
    lines = str(TextTable((shared, "count", "mean", "dev.", scale), rows)).splitlines()
    if profile.tau is not None:
        column = int((profile.tau - low) / (high - low) * len(profile.histogram))
        lines.append(" " * (lines[0].index(scale) + column) + f"^ tau = {profile.tau:.4f}")
    return "\n".join([*lines, describe_groups(profile)])


def draw_bars(histogram: tuple[int, ...]) -> str:
    """Draw one character per bin; every bin that is not empty is visible."""
    most = max(histogram)
    steps = len(HEIGHTS) - 1
    return "".join(HEIGHTS[-(-count * steps // most) if most else 0] for count in histogram)


def describe_groups(profile: Profile) -> str:
    """Describe in a sentence whether there are two groups."""
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
