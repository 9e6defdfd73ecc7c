"""What charts are drawn from: a plain record for each method at each budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tokencover.evaluation.metrics import Summary
from tokencover.evaluation.result_rows import ResultRow, find_average
from tokencover.evaluation.results import Results
from tokencover.evaluation.results_table import find_difference

RIVALS: Final = 5
"""Methods that are shown at first, besides the reference; the page can show them all."""


@dataclass(frozen=True)
class ChartRows:
    """Records for charts, and what is shown of them at first.

    Attributes
    ----------
    records : list of dict
        One for each method at each budget.
    labels : list of str
        All methods, the reference first.
    shown : list of str
        Those that are shown at first.
    budgets : list of str
        In the order of the table.
    whole : dict
        The unpruned model's costs, None where they are not known.
    """

    records: list[dict[str, Any]]
    labels: list[str]
    shown: list[str]
    budgets: list[str]
    whole: dict[str, float | None]


def make_chart_rows(stored: Results, reference: str) -> ChartRows:
    """Collect what charts show.

    "lost" is the accuracy minus that of the unpruned model in points, "low" and "high" the ends of
    its paired interval.
    """
    finished = [row for row in stored.rows if row.combination.method is not None and row.summary]
    records = [
        {
            **_make_record(row, row.summary, stored.unpruned),
            "own": row.combination.goes_by(reference),
        }
        for row in finished
        if row.summary
    ]
    labels = _order_labels(finished, stored, reference)
    own = [label for label in labels if _is_reference(label, finished, reference)]
    shown = labels[: len(own) + RIVALS]
    budgets = list(dict.fromkeys(each["budget"] for each in records))
    unpruned = None if stored.unpruned is None else stored.unpruned.summary
    tokens = None if unpruned is None else unpruned.mean_tokens
    whole = {"flops": 100.0, "time": 100.0, "mean_tokens": tokens}
    return ChartRows(records, labels, shown, budgets, whole)


def _make_record(row: ResultRow, summary: Summary, unpruned: ResultRow | None) -> dict[str, Any]:
    difference = find_difference(row, unpruned)
    flops = summary.flops
    return {
        "method": row.combination.label,
        "budget": row.combination.budget,
        "average": _round(find_average(row, unpruned), 2),
        "lost": None if difference is None else _round(100 * difference.mean, 2),
        "low": None if difference is None else _round(100 * difference.low, 2),
        "high": None if difference is None else _round(100 * difference.high, 2),
        "flops": None if flops is None else _round(100 * flops, 2),
        "time": None if row.first_token is None else _round(100 * row.first_token, 2),
        "tokens": _round(summary.tokens, 1),
        "mean_tokens": _round(summary.mean_tokens, 1),
    }


def _round(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _order_labels(rows: Sequence[ResultRow], stored: Results, reference: str) -> list[str]:
    """The reference, then the others by their mean Avg. over budgets."""
    averages: dict[str, list[float]] = {}
    for row in rows:
        averages.setdefault(row.combination.label, []).append(
            find_average(row, stored.unpruned) or 0.0
        )

    def rank(label: str) -> tuple[bool, float, str]:
        own = _is_reference(label, rows, reference)
        return not own, -sum(averages[label]) / len(averages[label]), label

    return sorted(averages, key=rank)


def _is_reference(label: str, rows: Sequence[ResultRow], reference: str) -> bool:
    return any(row.combination.goes_by(reference) for row in rows if row.combination.label == label)
