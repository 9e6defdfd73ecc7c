"""From records to the numbers of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tokencover.errors import InputError
from tokencover.evaluation.results_folder import Record

UNGROUPED: Final = "all"
"""The group of tasks that name none."""


@dataclass(frozen=True)
class Summary:
    """One row of a table.

    Attributes
    ----------
    accuracy : dict
        By task: its own number as a share, or else the mean score of the examples that did not
        fail; None if all failed.
    groups : dict
        By group: mean over its tasks; None if one of them has no score.
    headings : dict
        By group: what tables head its column with.
    tokens, mean_tokens, flops : float, optional
        Means over all examples that did not fail, tasks counting the same.
    failed : int
        Examples that failed, over all tasks.
    """

    accuracy: Mapping[str, float | None]
    groups: Mapping[str, float | None]
    headings: Mapping[str, str]
    tokens: float | None
    mean_tokens: float | None
    flops: float | None
    failed: int


def summarize(
    records: Mapping[str, Sequence[Record]],
    groups: Mapping[str, str],
    overall: Mapping[str, float] | None = None,
) -> Summary:
    """Summarize what one method did.

    Parameters
    ----------
    records : mapping
        By task.
    groups : mapping
        The group of each task.
    overall : mapping, optional
        The number of those tasks for which it is not the mean score.
    """
    good = {task: [each for each in rows if each.failed is None] for task, rows in records.items()}
    accuracy = {task: _average_known(each.score for each in rows) for task, rows in good.items()}
    accuracy.update(overall or {})
    members = {
        group: [task for task in records if groups[task] == group]
        for group in dict.fromkeys(groups[task] for task in records)
    }
    return Summary(
        accuracy,
        {
            group: average_all([accuracy[task] for task in tasks])
            for group, tasks in members.items()
        },
        {group: _choose_heading(group, tasks, len(records)) for group, tasks in members.items()},
        _average_known(_average_known(each.tokens for each in rows) for rows in good.values()),
        _average_known(_average_known(each.mean_tokens for each in rows) for rows in good.values()),
        _average_known(_average_known(each.flops for each in rows) for rows in good.values()),
        sum(each.failed is not None for rows in records.values() for each in rows),
    )


def _choose_heading(group: str, tasks: Sequence[str], count: int) -> str:
    """The group's name, or the name of its task if that says more."""
    is_alone = len(tasks) == 1 and (count == 1 or group == UNGROUPED)
    return tasks[0] if is_alone else group


def average_relative(scores: Mapping[str, float], vanilla: Mapping[str, float]) -> float:
    """The paper's "Avg.": mean over a row's benchmarks of score / unpruned score, in percent.

    Parameters
    ----------
    scores : mapping
        Of a method, by benchmark, on any scale; only these benchmarks count.
    vanilla : mapping
        Of the unpruned model, on the same scales.

    Raises
    ------
    InputError
        If the unpruned model has no score, or 0, in one of the benchmarks.
    """
    undefined = [name for name in scores if not vanilla.get(name)]
    if undefined or not scores:
        raise InputError(
            "an average relative to the unpruned model is not defined: it scores nothing in "
            f"{', '.join(undefined) or 'no benchmark at all'}. Leave these out, or ask more."
        )
    return 100 * sum(score / vanilla[name] for name, score in scores.items()) / len(scores)


def average_against(summary: Summary, unpruned: Summary) -> float | None:
    """`average_relative` of a row, None where it is not defined."""
    scores = {task: value for task, value in summary.accuracy.items() if value is not None}
    vanilla = {task: value for task, value in unpruned.accuracy.items() if value}
    complete = len(scores) == len(summary.accuracy) and set(scores) <= set(vanilla)
    return average_relative(scores, vanilla) if complete and scores else None


def average_all(values: Sequence[float | None]) -> float | None:
    """The mean, None if one of them is missing: a mean of the others would mean something else."""
    return None if any(value is None for value in values) else _average_known(values)


def _average_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
