"""Results in a form to send: one small document with every number, and without answers."""

from __future__ import annotations

from typing import Any, Final

from tokencover.evaluation.result_rows import ResultRow, find_average
from tokencover.evaluation.results import Results

EXPORT_KIND: Final = "tokencover results"
EXPORT_VERSION: Final = 1


def export_results(stored: Results) -> dict[str, Any]:
    """Model, versions, settings, and of each method and budget its numbers by task.

    Scores are shares between 0 and 1, "average" is the paper's "Avg." in percent; what was not
    measured is None.
    """
    return {
        "version": EXPORT_VERSION,
        "run": dict(stored.run),
        "groups": dict(stored.groups),
        "rows": [_export_row(row, stored) for row in stored.rows],
    }


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
            }
            for task, records in row.records.items()
        },
    }
