"""What the study found, as tables: scores by cost, differences from one, agreement of the seeds.

    python -m research.study.tables results/study        # what is there, nothing is asked

A score is the mean over kinds of accuracy / accuracy unpruned. Differences are of accuracies, in
points, paired and with intervals that resample whole scenes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from research.study.models import ASKED_ELSE, BOULDER, BUNDLED, SEEDS, USUAL, Judge, get_test_model
from research.study.plan import MODES
from tokencover.budget import BudgetMode
from tokencover.evaluation import Results, read_folder
from tokencover.files import write_atomically
from tokencover.statistics import Interval

TITLES = {
    "exact": "Equal kept tokens",
    "layer_mean": "Equal mean per layer",
    "flops": "Equal prefill FLOPs",
}


@dataclass(frozen=True)
class Found:
    """What a method reached at one cost with one model.

    Attributes
    ----------
    score
        Fraction of the unpruned model's.
    flops
        Prefill FLOPs, as a fraction of the unpruned model's.
    difference
        From the method that all are compared with, at the same cost; None for that itself.
    """

    score: float
    flops: float
    difference: Interval | None


COMPARED: Final = ("mob", "mob_stages")
"""Others are compared with these."""

PICTURES: Final = [get_test_model(name) for name in SEEDS]

Run = Mapping[tuple[str, str], Found | None]
"""By method and cost; None where the method cannot reach the cost."""


def main() -> None:
    """Print the tables of a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="of a study, finished or not")
    options = parser.parse_args()
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is no folder: name the one that the study writes to")
    judges = [get_test_model(name) for name in (*USUAL, BOULDER)]
    print(write_tables(options.folder, judges, MODES))


def write_tables(folder: Path, judges: Sequence[Judge], modes: Sequence[BudgetMode]) -> str:
    """Write `study.md` and `study.json` into the folder; give the text.

    Parameters
    ----------
    folder
        Of all runs.
    judges, modes
        Which runs; those that are not there or not finished are left out, the times are reported if
        they are there.
    """
    parts: list[str] = []
    stored: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for mode in modes:
        stored[mode] = {}
        for among, group in group_judges(judges).items():
            read = read_all(folder, group, mode)
            if read:
                parts += [
                    f"## {TITLES[mode]}{among}",
                    *format_runs(read, mode, group[0].costs[mode]),
                ]
                stored[mode] |= {name: _as_json(results) for name, results in read.items()}
            if read and group[0].name == BOULDER:
                parts += format_similarity(read[BOULDER], read_all(folder, PICTURES, mode), mode)
    if (folder / "times").is_dir():
        parts += ["## Time to the first token", make_time_table(read_folder(folder / "times"))]
    text = "\n\n".join(parts) + "\n"
    write_atomically(folder / "study.md", text.encode())
    write_atomically(folder / "study.json", (json.dumps(stored, indent=1) + "\n").encode())
    return text


def group_judges(judges: Sequence[Judge]) -> dict[str, list[Judge]]:
    """Judges whose scores are averaged, by what a title says of them."""
    of_pictures = [judge for judge in judges if judge.name not in ASKED_ELSE]
    alone = {f", {judge.name}": [judge] for judge in judges if judge.name in ASKED_ELSE}
    return {"": of_pictures, **alone}


def read_all(folder: Path, judges: Sequence[Judge], mode: BudgetMode) -> dict[str, Results]:
    """The runs that are finished, by the judges' titles."""
    folders = {judge.title: folder / f"{judge.name}-{mode}" for judge in judges}
    found = {title: read_folder(each) for title, each in folders.items() if each.is_dir()}
    return {title: results for title, results in found.items() if results.finished}


def format_runs(
    read: Mapping[str, Results], mode: BudgetMode, costs: Sequence[str]
) -> Iterator[str]:
    """All tables of one mode, for runs with several models."""
    # The first row alone: others would draw their intervals for nothing.
    unpruned = {
        name: replace(results, rows=results.rows[:1]).to_dicts()[0]["accuracy"]
        for name, results in read.items()
    }
    told = (f"{name} {100 * right:.1f} %" for name, right in unpruned.items())
    yield f"Unpruned: {', '.join(told)}"
    compared = {
        reference: {
            name: read_run(replace(results, reference=reference), costs)
            for name, results in read.items()
        }
        for reference in COMPARED
    }
    runs = compared[COMPARED[0]]
    yield make_table("score, %", runs, costs, show_score)
    if mode != "flops":
        yield make_table("FLOPs, %", runs, costs, show_flops)
    for reference, differing in compared.items():
        yield make_table(f"minus {reference}", differing, costs, show_difference)
    if len(runs) > 1:
        yield format_agreement(runs, costs)


def read_run(results: Results, costs: Sequence[str]) -> Run:
    """What was found; the budgets, large ones first, are those of the costs."""
    rows = [row for row in results.to_dicts() if row["budget"]]
    budgets = sorted({row["budget"] for row in rows}, reverse=True)
    cost_of = dict(zip(budgets, costs, strict=True))
    names = shorten_labels([row["method"] for row in rows])  # settings are reported once for all
    return {(names[row["method"]], cost_of[row["budget"]]): _read_row(row) for row in rows}


def shorten_labels(labels: Sequence[str]) -> dict[str, str]:
    """Map labels of `name_method` to names without settings.

    Of several labels with one name only one is shortened: the one without settings, or the first.
    """
    short: dict[str, str] = {}
    for label in dict.fromkeys(labels):
        name = label.partition(":")[0]
        short[label] = label if name in labels or name in short.values() else name
    return short


def _read_row(row: Mapping[str, Any]) -> Found | None:
    if row["relative"] is None:
        return None
    ends = [row[name] for name in ("difference", "difference_low", "difference_high")]
    difference = None if None in ends else Interval(*ends)
    return Found(row["relative"], row["flops"], difference)


def make_table(
    title: str,
    runs: Mapping[str, Run],
    costs: Sequence[str],
    show: Callable[[Sequence[Found]], str],
) -> str:
    """A line for every method, best first, a column for every cost.

    Parameters
    ----------
    title
        Stands above the methods.
    runs
        With each model.
    costs
        The columns.
    show
        Makes a cell of what all runs found.
    """
    names = list(dict.fromkeys(name for run in runs.values() for name, _ in run))
    order = sorted(names, key=lambda name: -_compute_mean(runs, name, costs))
    lines = [
        [name, *(show(found) if (found := _get_all(runs, name, cost)) else "-" for cost in costs)]
        for name in order
    ]
    return _join_table([title, *costs], lines)


def _get_all(runs: Mapping[str, Run], name: str, cost: str) -> list[Found]:
    """What was found in all runs; nothing if the method cannot in one."""
    found = [run.get((name, cost)) for run in runs.values()]
    return [] if None in found else [each for each in found if each is not None]


def _compute_mean(runs: Mapping[str, Run], name: str, costs: Sequence[str]) -> float:
    """Mean over costs and runs; a cost that cannot be reached counts nothing."""
    scores = [each.score for cost in costs for each in _get_all(runs, name, cost)]
    return sum(scores) / (len(costs) * len(runs))


def show_score(found: Sequence[Found]) -> str:
    """The mean of all runs."""
    return f"{100 * fmean(each.score for each in found):.1f}"


def show_flops(found: Sequence[Found]) -> str:
    """The mean of all runs."""
    return f"{100 * fmean(each.flops for each in found):.1f}"


def show_difference(found: Sequence[Found]) -> str:
    """In points, and in how many runs it is significantly."""
    differences = [each.difference for each in found if each.difference is not None]
    if not differences:
        return ""
    above = sum(each.low > 0 for each in differences)
    below = sum(each.high < 0 for each in differences)
    sure = [f"{above} above" if above else "", f"{below} below" if below else ""]
    points = f"{100 * fmean(each.mean for each in differences):+.1f}"
    return ", ".join([points, *filter(None, sure)])


def format_agreement(runs: Mapping[str, Run], costs: Sequence[str]) -> str:
    """How alike two runs rank the methods: Kendall's tau, at each cost."""
    lines = [
        [f"{first}, {second}", *(f"{compute_tau(one, other, cost):.2f}" for cost in costs)]
        for (first, one), (second, other) in combinations(runs.items(), 2)
    ]
    return _join_table(["ranked alike (tau)", *costs], lines)


def format_similarity(
    boulder: Results, pictures: Mapping[str, Results], mode: BudgetMode
) -> Iterator[str]:
    """How alike boulder and each of pebble's models rank the methods that both were asked."""
    costs, theirs = get_test_model(BOULDER).costs[mode], get_test_model(BUNDLED).costs[mode]
    own = read_run(boulder, costs)
    others = {name: read_run(results, theirs) for name, results in pictures.items()}
    lines = [
        [f"{BOULDER}, {name}", *(f"{compute_tau(own, other, cost):.2f}" for cost in costs)]
        for name, other in others.items()
    ]
    if lines:
        yield _join_table(["ranked alike (tau)", *costs], lines)


def compute_tau(one: Run, other: Run, cost: str) -> float:
    """Kendall's tau-a of the scores that both runs have at a cost."""
    names = [name for name, each in one if each == cost]
    pairs = [
        (mine.score, theirs.score)
        for name in names
        if (mine := one[name, cost]) is not None and (theirs := other.get((name, cost))) is not None
    ]
    signs = [_sign(a[0] - b[0]) * _sign(a[1] - b[1]) for a, b in combinations(pairs, 2)]
    return sum(signs) / len(signs) if signs else 1.0


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def make_time_table(results: Results) -> str:
    """Operations and time to the first token, both as fractions of the unpruned model's."""
    lines = [
        [
            row.combination.label,
            row.budget,
            f"{row.summary.flops:.1%}",
            "-" if row.first_token is None else f"{row.first_token:.1%}",
        ]
        for row in results
        if row.budget and row.summary is not None
    ]
    return _join_table(["method", "budget", "operations", "time to first token"], lines)


def _join_table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *lines])


def _as_json(results: Results) -> list[dict[str, Any]]:
    """Each method at each budget, without what it may have said while it ran."""
    wanted = ("method", "budget", "relative", "flops")
    ends = ("difference", "difference_low", "difference_high")
    return [{name: row[name] for name in (*wanted, *ends)} for row in results.to_dicts()]


if __name__ == "__main__":
    main()
