"""``tokencover calibrate``: how strongly prompts and pictures are coupled in a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tokencover.cli.options import (
    OUTPUT,
    Attention,
    BatchSize,
    Device,
    Dtype,
    JsonInstead,
    Limit,
    ModelName,
    ModelOptions,
    Quantization,
    SplitName,
    TaskNames,
    Threads,
    print_json,
    read_model_options,
    read_new_file,
    read_task_names,
    read_whole_number,
    take,
)
from tokencover.files import read_object
from tokencover.tables import TextTable, print_text

if TYPE_CHECKING:
    from tokencover.budget import Profile

HEIGHTS: Final = " ▁▂▃▄▅▆▇█"


MoreNames = Annotated[list[str] | None, typer.Argument(metavar="TASK", hidden=True)]
"""What stands after blanks, as in `--data mine.jsonl other.jsonl` of earlier versions."""
MeasuredAfter = Annotated[
    int,
    take(
        "--after",
        "N",
        "Decoder blocks before the measurement.",
        read=read_whole_number,
    ),
]
ProfileFile = Annotated[Path, take("--out", "FILE", "The profile.", OUTPUT, read=read_new_file)]


def measure_coupling(
    more: MoreNames = None,
    model: ModelName = "pebble",
    dtype: Dtype = None,
    device: Device = None,
    quantization: Quantization = None,
    attention: Attention = None,
    model_options: ModelOptions = None,
    tasks: TaskNames = None,
    split: SplitName = "validation",
    limit: Limit = None,
    after: MeasuredAfter = 1,
    batch_size: BatchSize = 8,
    threads: Threads = None,
    out: ProfileFile = Path("profile.json"),
    as_json: JsonInstead = False,
) -> None:
    """Find the threshold between strong and weak coupling."""
    from tokencover.bundled_models import get_default_tasks
    from tokencover.cli.threads import set_threads
    from tokencover.evaluation import (
        calibrate,
        check_files,
        load_model,
        load_tasks,
    )
    from tokencover.evaluation.progress import open_progress

    options = read_model_options(quantization, attention, model_options)
    given = None if tasks is None and not more else [*(tasks or []), *(more or [])]
    names = read_task_names(given) or [get_default_tasks(model)]
    found = load_tasks(names, split=split, limit=limit)
    for task in found:
        if Path(task.source).is_file():
            check_files(task)
    set_threads(threads)
    loaded = load_model(model, device=device, dtype=dtype, **options)
    loaded.check(found)
    record = out.with_suffix(".batches.jsonl")
    progress = open_progress(len(found))
    try:
        profile, without = calibrate(
            loaded, found, record, progress, split=split, after=after, batch_size=batch_size
        )
    except KeyboardInterrupt:
        progress.note(f"what is done is kept in {record}, and the same command goes on from there")
        raise
    finally:
        progress.close()
    profile.save(out)
    if as_json:
        print_json({**read_object(out), "without_words_or_picture": without})
        return
    print_text(describe_profile(profile))
    if without:
        print(f"{without} samples have no words or no picture; they were left out")
    print_text(f"saved to {out}: tc.MoB(budget, split=tc.CouplingSplit({str(out)!r}))")


def describe_profile(profile: Profile) -> str:
    """The distribution as text: a row of bars for each task, and whether there are two groups."""
    low, high = profile.edges[0], profile.edges[-1]
    scale = f"{low:.3f}".ljust(len(profile.histogram) - 5) + f"{high:.3f}"
    shared = _find_benchmark([task.name for task in profile.tasks])
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
        place = int((profile.tau - low) / (high - low) * len(profile.histogram))
        lines.append(" " * (lines[0].index(scale) + place) + f"^ tau = {profile.tau:.4f}")
    return "\n".join([*lines, judge_groups(profile)])


def _find_benchmark(names: Sequence[str]) -> str:
    """What stands before the slash of all names; empty if they differ, or some have none."""
    found = {name.rpartition("/")[0] for name in names}
    return found.pop() if len(found) == 1 else ""


def draw_bars(histogram: tuple[int, ...]) -> str:
    """One character a bin; every bin that is not empty shows."""
    most = max(histogram)
    steps = len(HEIGHTS) - 1
    return "".join(HEIGHTS[-(-count * steps // most) if most else 0] for count in histogram)


def judge_groups(profile: Profile) -> str:
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
