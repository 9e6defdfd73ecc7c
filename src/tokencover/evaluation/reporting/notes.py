"""What a report says in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tokencover.evaluation.reporting.published import shared_benchmarks
from tokencover.evaluation.reporting.stored import Stored

SUMS: Final = ("MME", "OCR")
"""Benchmarks that the paper prints on a scale of their own."""


def run_facts(stored: Stored) -> str:
    """Model, versions, settings and size of the run, in one line."""
    parts = [
        _pairs(stored.run[key], without=("weights", "name"))
        for key in sorted(stored.run)
        if isinstance(stored.run[key], Mapping)
    ]
    examples = max((sum(map(len, row.records.values())) for row in stored.rows), default=0)
    return "; ".join([f"{len(stored.groups)} tasks, {examples} examples", *filter(None, parts)])


def how_to_read(reference: str) -> list[str]:
    """What the columns of the comparison mean."""
    return [
        "Accuracy in percent, tasks of a group counting the same. Avg. is, as in the MoB paper, "
        "the mean over tasks of accuracy / accuracy unpruned. The best of a budget is bold, "
        "the second underlined; what is shown alike is marked alike.",
        "Tokens left is what remains of the visual tokens in the end, mean per layer what a "
        "decoder block works on. FLOPs are those of the decoder's prefill, TTFT is the "
        "time to the first token (medians), both relative to the unpruned model of the same run.",
        f"The last column is the accuracy, mean over tasks, minus that of {reference} at the same "
        "budget, in points, with a paired 95 % bootstrap interval over clusters of examples.",
    ]


def troubles(stored: Stored) -> list[str]:
    """What is missing, and why."""
    found = []
    for row in stored.rows:
        if row.summary is not None and row.summary.failed:
            count = sum(map(len, row.records.values()))
            failed = row.summary.failed
            found.append(f"{row.combination}: {failed} of {count} examples failed, not scored.")
    unpruned = stored.unpruned
    if unpruned is None or unpruned.summary is None:
        found.append("Avg. is not defined: the unpruned model has not answered all tasks yet.")
        return found
    zero = [task for task, score in unpruned.summary.accuracy.items() if not score]
    if zero:
        found.append(f"Avg. is not defined: the unpruned model has no score in {', '.join(zero)}.")
    return found


def paper_notes(stored: Stored) -> list[str]:
    """How far the paper's numbers can be compared with those of this run."""
    notes = [
        "Columns marked “paper” are printed in the MoB paper (Tables 2, 3 and 5), measured by its "
        "authors or taken by them from other papers, not by this run; those marked “here” are of "
        "this run. Budgets count as the same within one point of reduction."
    ]
    shared = shared_benchmarks(stored)
    if sums := [name for name in SUMS if name in shared]:
        notes.append(
            f"{' and '.join(sums)}: the paper prints sums of points, here they are percent."
        )
    others = [task for task in stored.groups if task not in shared.values()]
    if others:
        notes.append(
            f"This run's Avg. is over its {len(stored.groups)} tasks, of which "
            f"{len(shared) or 'none'} {'is' if len(shared) == 1 else 'are'} named like a benchmark "
            "of the paper: compare trends, not digits."
        )
    return notes


def _pairs(found: Mapping[str, object], without: tuple[str, ...]) -> str:
    shown = [(key, value) for key, value in sorted(found.items()) if key not in without]
    return ", ".join(
        f"{key.replace('_', ' ')} {value}" for key, value in shown if value is not None
    )
