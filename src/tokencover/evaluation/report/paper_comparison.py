"""The paper's printed numbers beside one's own, where the model is one of the paper's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tokencover.evaluation.paper_tables import PAPER_ROWS, VANILLA, PaperRow
from tokencover.evaluation.result_rows import ResultRow, find_average
from tokencover.evaluation.results import Results
from tokencover.evaluation.results_table import NOTHING, format_decimal, format_percent
from tokencover.methods import METHODS, MoB

PAPER_MODELS: Final = {
    "LLaVA-1.5-7B": r"llava-v?1\.5-7b",
    "LLaVA-Next-7B": r"llava-(next-7b|v1\.6-7b|(v1\.6|next)-vicuna-7b)",
    "Qwen2-VL-7B": r"qwen2-vl-7b",
    "Video-LLaVA-7B": r"video-llava-7b",
}
"""How checkpoints of the paper's models are called, as a name or the last part of a path."""
SPLITS: Final = {"paper": "mob", "strong": "mob+prior", "weak": "mob+prior"}
"""What the paper calls MoB with each of its splits; it has no numbers for others."""
NEAR: Final = 1.0
"""Points of reduction that may lie between a budget of ours and one of the paper's."""


@dataclass(frozen=True)
class PaperComparison:
    """A row of the paper, and ours of the same method and reduction if there is one.

    Attributes
    ----------
    paper : PaperRow
        What is printed.
    method : str
        The method's title.
    ours : ResultRow, optional
        Of this run.
    average : str
        Our "Avg.", over this run's tasks, as it is shown.
    scores : dict
        By the paper's name of a benchmark that this run has too: its number as printed, and ours in
        percent; "-" where there is none.
    """

    paper: PaperRow
    method: str
    ours: ResultRow | None
    average: str
    scores: dict[str, tuple[str, str]]

    @property
    def name(self) -> str:
        """The method, and which of ours is meant."""
        if self.ours is None or self.ours.combination.method is None:
            return self.method
        return f"{self.method}, here {self.ours.combination}"


def find_paper_model(name: str) -> str | None:
    """The paper's name of a model, None if the model is not one of the paper's."""
    last = re.sub(r"[\s_]", "-", name.lower()).rstrip("/").rsplit("/", 1)[-1]
    return next((model for model, form in PAPER_MODELS.items() if re.match(form, last)), None)


def compare_with_paper(stored: Results) -> list[PaperComparison]:
    """The paper's rows of this model, at the reductions that were evaluated here too."""
    model = find_paper_model(stored.model)
    reductions = [_find_reduction(row, stored) for row in stored.rows]
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
    return found


def find_shared_benchmarks(stored: Results) -> dict[str, str]:
    """The paper's benchmarks that are tasks of this run, with the task's name."""
    tasks = {_simplify(name.rsplit("/", 1)[-1]): name for name in stored.groups}
    names = dict.fromkeys(name for row in PAPER_ROWS for name in row.scores)
    return {name: tasks[_simplify(name)] for name in names if _simplify(name) in tasks}


def _compare(paper: PaperRow, ours: ResultRow | None, stored: Results) -> PaperComparison:
    scores = {
        benchmark: (
            _show_printed(paper.scores.get(benchmark)),
            format_percent(
                None if ours is None or ours.summary is None else ours.summary.accuracy[task]
            ),
        )
        for benchmark, task in find_shared_benchmarks(stored).items()
    }
    mean = None if ours is None else find_average(ours, stored.unpruned)
    return PaperComparison(paper, _find_title(paper.method), ours, format_decimal(mean), scores)


def _find_reduction(row: ResultRow, stored: Results) -> float | None:
    """Share of visual tokens that a row drops, in percent."""
    unpruned = stored.unpruned
    if unpruned is None or unpruned.summary is None or row.summary is None:
        return None
    all_tokens, left = unpruned.summary.tokens, row.summary.tokens
    return None if not all_tokens or left is None else 100 * (1 - left / all_tokens)


def _is_same(row: ResultRow, paper: PaperRow) -> bool:
    method = row.combination.method
    if method is None or paper.method == VANILLA:
        return method is None and paper.method == VANILLA
    if isinstance(method, MoB):
        return paper.method == SPLITS.get(str(method.split))
    return method.name == paper.method


def _find_title(name: str) -> str:
    if name == VANILLA:
        return "unpruned"
    return "MoB with prior" if name == "mob+prior" else METHODS[name].card.title


def _show_printed(score: float | None) -> str:
    return NOTHING if score is None else f"{score:g}"


def _simplify(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
