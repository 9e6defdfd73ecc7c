"""What the study found, as tables: scores by cost, differences from MoB, agreement of the seeds.

A score is the mean over kinds of accuracy / accuracy unpruned. Differences are of accuracies, in
points, paired and with intervals that resample whole scenes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from study_plan import COSTS
from tokencover.evaluation import Results, read_folder
from tokencover.files import write_atomically
from tokencover.statistics import Interval

TITLES = {
    "exact": "Equal tokens left",
    "layer_mean": "Equal mean over blocks",
    "flops": "Equal operations of the prefill",
}


@dataclass(frozen=True)
class Found:
    """What a method reached at one cost with one model.

    Attributes
    ----------
    score
        Share of the unpruned model's.
    flops
        Operations of the prefill, as a share of the unpruned model's.
    difference
        From MoB at the same cost.
    """

    score: float
    flops: float
    difference: Interval


Run = Mapping[tuple[str, int], Found | None]
"""By method and cost; None where the method cannot reach the cost."""


def write_tables(folder: Path, seeds: Sequence[int], modes: Sequence[str]) -> str:
    """Write `study.md` and `study.json` into the folder; give the text.

    Parameters
    ----------
    folder
        Of all runs.
    seeds, modes
        Which runs; those of clips and the times are told if they are there.
    """
    parts, stored = [], {}
    for mode in modes:
        runs = {f"seed {seed}": read_run(folder / f"seed{seed}-{mode}") for seed in seeds}
        parts += [f"## {TITLES[mode]}", make_score_table(runs), tell_agreement(runs)]
        if (folder / f"clips-{mode}").is_dir():
            clips = {"clips": read_run(folder / f"clips-{mode}")}
            parts += [f"### {TITLES[mode]}, clips", make_score_table(clips)]
            runs |= clips
        stored[mode] = {name: _as_json(run) for name, run in runs.items()}
    if (folder / "times").is_dir():
        parts += ["## Time to the first token", make_time_table(read_folder(folder / "times"))]
    text = "\n\n".join(parts) + "\n"
    write_atomically(folder / "study.md", text.encode())
    write_atomically(folder / "study.json", (json.dumps(stored, indent=1) + "\n").encode())
    return text


def read_run(folder: Path) -> Run:
    """Read a run; its budgets, large ones first, are those of the costs."""
    rows = [row for row in read_folder(folder).to_dicts() if row["budget"]]
    budgets = sorted({row["budget"] for row in rows}, reverse=True)
    costs = dict(zip(budgets, COSTS, strict=False))
    return {(_find_name(row), costs[row["budget"]]): _read_row(row) for row in rows}


def _find_name(row: Mapping[str, Any]) -> str:
    """The method alone: what it was set to is told once, for all."""
    name: str = row["method"].partition(":")[0]
    return name


def _read_row(row: Mapping[str, Any]) -> Found | None:
    if row["relative"] is None:
        return None
    ends = (row[name] for name in ("difference", "difference_low", "difference_high"))
    return Found(row["relative"], row["flops"], Interval(*((end or 0.0) for end in ends)))


def make_score_table(runs: Mapping[str, Run]) -> str:
    """Scores of every method at every cost, the mean of all runs, best method first.

    After a score stands in how many runs the method is beyond doubt above (+) or below (-) MoB.
    """
    names = list(dict.fromkeys(name for run in runs.values() for name, _ in run))
    lines = {name: [_show(runs, name, cost) for cost in COSTS] for name in names}
    order = sorted(names, key=lambda name: -_find_mean(runs, name))
    head = ["method", *(f"cost of K = {cost}" for cost in COSTS)]
    return _join_table(head, [[name, *lines[name]] for name in order])


def _find_scores(runs: Mapping[str, Run], name: str, cost: int) -> list[Found]:
    """What was found in all runs; nothing if one cannot."""
    found = [run.get((name, cost)) for run in runs.values()]
    return [] if None in found else [each for each in found if each is not None]


def _find_mean(runs: Mapping[str, Run], name: str) -> float:
    """Mean over costs and runs; a cost that cannot be reached counts nothing."""
    scores = [each.score for cost in COSTS for each in _find_scores(runs, name, cost)]
    return sum(scores) / (len(COSTS) * len(runs))


def _show(runs: Mapping[str, Run], name: str, cost: int) -> str:
    found = _find_scores(runs, name, cost)
    if not found:
        return "cannot"
    score = sum(each.score for each in found) / len(found)
    above = sum(each.difference.low > 0 for each in found)
    below = sum(each.difference.high < 0 for each in found)
    doubt = "".join([f" +{above}" if above else "", f" -{below}" if below else ""])
    return f"{100 * score:.1f}{doubt}"


def tell_agreement(runs: Mapping[str, Run]) -> str:
    """How alike two runs rank the methods: Kendall's tau, at each cost."""
    lines = []
    for (first, one), (second, other) in combinations(runs.items(), 2):
        taus = [compute_tau(one, other, cost) for cost in COSTS]
        lines.append([f"{first}, {second}", *(f"{tau:.2f}" for tau in taus)])
    head = ["ranked alike (tau)", *(f"K = {cost}" for cost in COSTS)]
    return _join_table(head, lines) if lines else "One model: there is nothing to agree."


def compute_tau(one: Run, other: Run, cost: int) -> float:
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
    """Operations and time to the first token, both as shares of the unpruned model's."""
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


def _as_json(run: Run) -> dict[str, dict[str, object]]:
    return {
        f"{name} {cost}": {}
        if found is None
        else {
            "score": found.score,
            "flops": found.flops,
            "difference": [found.difference.mean, found.difference.low, found.difference.high],
        }
        for (name, cost), found in run.items()
    }
