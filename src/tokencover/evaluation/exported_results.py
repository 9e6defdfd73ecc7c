"""Results in a form to send: one small document with every number, and without answers."""

from __future__ import annotations

from typing import Any, Final

from tokencover.evaluation.lmms import find_benchmark, split_names
from tokencover.evaluation.result_rows import ResultRow, find_average
from tokencover.evaluation.results import Results

EXPORT_KIND: Final = "tokencover results"
EXPORT_VERSION: Final = 1


def export_results(stored: Results) -> dict[str, Any]:
    """Model, versions, settings, and of each method and budget its numbers by task.

    Scores are shares between 0 and 1, "metrics" is what a benchmark counts on its own scales,
    "average" is the paper's "Avg." in percent; what was not measured is None. Of the paper's
    benchmarks it is told which split was asked, the paper's number without pruning, and how ours
    may differ.
    """
    return {
        "version": EXPORT_VERSION,
        "run": dict(stored.run),
        "groups": dict(stored.groups),
        "tasks": {task: _describe_task(task, stored) for task in stored.groups},
        "rows": [_export_row(row, stored) for row in stored.rows],
    }


def _describe_task(task: str, stored: Results) -> dict[str, Any]:
    source = stored.sources.get(task, "")
    described = {"about": stored.about.get(task, ""), "source": source}
    _, theirs = split_names([source])
    benchmark = find_benchmark(theirs[0]) if theirs else None
    if benchmark is None:
        return described
    kept = ("dataset", "split", "questions", "metric", "paper", "differs")
    return {**described, "benchmark": {name: getattr(benchmark, name) for name in kept}}


def _export_row(row: ResultRow, stored: Results) -> dict[str, Any]:
    made, summary = row.combination, row.summary
    return {
        "name": made.label,
        "budget": made.budget,
        "method": made.settings,
        "cannot": row.cannot,
        "average": find_average(row, stored.unpruned),
        "tokens": None if summary is None else summary.tokens,
        "mean_tokens": None if summary is None else summary.mean_tokens,
        "flops": None if summary is None else summary.flops,
        "first_token": row.first_token,
        "tasks": {
            task: {
                "score": None if summary is None else summary.accuracy[task],
                "examples": len(records),
                "failed": sum(each.failed is not None for each in records),
                **({"metrics": dict(row.metrics[task])} if task in row.metrics else {}),
            }
            for task, records in row.records.items()
        },
    }
