"""The paper's printed numbers, and those of a run beside them if the model is one of the paper's.

``data/paper_tables.json`` has the MoB paper's Tables 5 (which contains Table 1), 2 and 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tokencover.evaluation.columns import NOTHING, format_decimal, format_percent
from tokencover.evaluation.results import Results
from tokencover.evaluation.scoring import ResultRow, compute_relative_average
from tokencover.files import read_object
from tokencover.methods import METHODS, MoB

VANILLA: Final = "vanilla"
PAPER_MODELS: Final = {
    "LLaVA-1.5-7B": r"llava-v?1\.5-7b",
    "LLaVA-Next-7B": r"llava-(next-7b|v1\.6-7b|(v1\.6|next)-vicuna-7b)",
    "Qwen2-VL-7B": r"qwen2-vl-7b",
    "Video-LLaVA-7B": r"video-llava-7b",
}
"""Patterns of names, or last parts of paths, of the paper's models."""
SPLITS: Final = {"paper": "mob", "strong": "mob+prior", "weak": "mob+prior"}
"""The paper's name of MoB with a split; it has no numbers for other splits."""
NEAR: Final = 1.0
"""Largest difference in points of reduction between our budget and the paper's."""


@dataclass(frozen=True)
class PaperRow:
    """One row of a table, with the printed scores by benchmark and "Avg." in percent.

    `reduction` is the percentage of visual tokens that is dropped; `method` is "vanilla" or a name
    of `METHODS`, and "mob+prior" is MoB with the paper's prior.
    """

    table: int
    model: str
    reduction: float
    method: str
    scores: dict[str, float]
    printed_average: float


def _read_rows() -> Iterator[PaperRow]:
    content = read_object(Path(__file__).parents[1] / "data" / "paper_tables.json")
    for section in content["sections"]:
        table, model, reduction = section["table"], section["model"], float(section["reduction"])
        benchmarks = content["benchmarks"][str(table)]
        for method, (*cells, average) in section["rows"].items():
            pairs = zip(benchmarks, cells, strict=True)
            scores = {name: float(cell) for name, cell in pairs if cell is not None}
            yield PaperRow(table, model, reduction, method, scores, float(average))


PAPER_ROWS: Final = tuple(_read_rows())


@dataclass(frozen=True)
class PaperComparison:
    """A row of the paper, and ours of the same method and reduction if there is one.

    `average` is our "Avg." as printed. `scores` has, by the paper's name of a benchmark of this
    run, its number as printed, and ours in percent.
    """

    paper: PaperRow
    method: str
    ours: ResultRow | None
    average: str
    scores: dict[str, tuple[str, str]]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The paper's number and ours: "Avg.", then each benchmark."""
        return [(f"{self.paper.printed_average:g}", self.average), *self.scores.values()]

    @property
    def name(self) -> str:
        """The method, and the one of this run."""
        if self.ours is None or self.ours.combination.method is None:
            return self.method
        return f"{self.method}, here {self.ours.combination}"


def get_paper_model(name: str) -> str | None:
    """Return the paper's name of a model, None if it is not one of the paper's."""
    last = re.sub(r"[\s_]", "-", name.lower()).rstrip("/").rsplit("/", 1)[-1]
    return next((model for model, form in PAPER_MODELS.items() if re.match(form, last)), None)


def compare_with_paper(stored: Results) -> list[PaperComparison]:
    """Return the paper's rows of this model at the reductions of this run, smallest first."""
    model = get_paper_model(stored.model)
    reductions = [_compute_reduction(row, stored) for row in stored.rows]
    found: list[PaperComparison] = []
    for paper in PAPER_ROWS:
        near = [
            row
            for row, reduction in zip(stored.rows, reductions, strict=True)
            if reduction is not None and abs(reduction - paper.reduction) <= NEAR
        ]
        if paper.model != model or not near:
            continue
        ours: Sequence[ResultRow | None] = [row for row in near if _is_same(row, paper)] or [None]
        found += [_compare(paper, row, stored) for row in ours]
    return sorted(found, key=lambda each: each.paper.reduction)


def list_headings(comparisons: Sequence[PaperComparison]) -> list[str]:
    """Return the headings of `PaperComparison.pairs`."""
    names = ["Avg. %", *comparisons[0].scores]
    return [f"{name} ({who})" for name in names for who in ("paper", "here")]


def list_shared_benchmarks(stored: Results) -> dict[str, str]:
    """Return the paper's benchmarks that are tasks of this run, with the task's name."""
    tasks = {_simplify(name.rsplit("/", 1)[-1]): name for name in stored.groups}
    names = dict.fromkeys(name for row in PAPER_ROWS for name in row.scores)
    return {name: tasks[_simplify(name)] for name in names if _simplify(name) in tasks}


def _compare(paper: PaperRow, ours: ResultRow | None, stored: Results) -> PaperComparison:
    summary = None if ours is None else ours.summary
    scores = {
        benchmark: (
            f"{paper.scores[benchmark]:g}" if benchmark in paper.scores else NOTHING,
            format_percent(None if summary is None else summary.accuracy[task]),
        )
        for benchmark, task in list_shared_benchmarks(stored).items()
    }
    mean = None if ours is None else compute_relative_average(ours, stored.unpruned)
    titles = {VANILLA: "unpruned", "mob+prior": "MoB with prior"}
    title = titles.get(paper.method) or METHODS[paper.method].card.title
    return PaperComparison(paper, title, ours, format_decimal(mean), scores)


def _compute_reduction(row: ResultRow, stored: Results) -> float | None:
    """Percentage of visual tokens that a row drops."""
    unpruned = stored.unpruned
    if unpruned is None or unpruned.summary is None or row.summary is None:
        return None
    all_tokens, kept = unpruned.summary.tokens, row.summary.tokens
    return None if not all_tokens or kept is None else 100 * (1 - kept / all_tokens)


def _is_same(row: ResultRow, paper: PaperRow) -> bool:
    method = row.combination.method
    if method is None or paper.method == VANILLA:
        return method is None and paper.method == VANILLA
    if isinstance(method, MoB):
        return paper.method == SPLITS.get(str(method.split))
    return method.name == paper.method


def _simplify(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
