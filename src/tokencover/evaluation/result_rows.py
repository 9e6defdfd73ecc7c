"""What is known of each combination of method and budget: a row of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tokencover.evaluation.metrics import Summary, average_against, summarize
from tokencover.evaluation.plan import Combination, EvaluationPlan, Scoring, Timing
from tokencover.evaluation.results_folder import Record
from tokencover.evaluation.results_memory import ResultsStore

Records = Mapping[str, Sequence[Record]]
"""By task."""


@dataclass(frozen=True, repr=False)
class ResultRow:
    """What is known of one combination.

    Attributes
    ----------
    combination : Combination
        Method and budget.
    records : mapping
        By task; empty if the method cannot run on one of them.
    summary : Summary, optional
        Of the records; None if the method cannot run, or has not finished.
    first_token : float, optional
        Time to the first token, as a share of that without pruning.
    cannot : str, optional
        Why the method cannot run.
    metrics : mapping
        By task: everything that a benchmark counts, by its own names and on its own scales.
    """

    combination: Combination
    records: Records
    summary: Summary | None
    first_token: float | None
    cannot: str | None
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def method(self) -> str:
        """The method with its settings, as a person names it; "unpruned" for the model as it is."""
        return self.combination.label

    @property
    def budget(self) -> str:
        """As it was given; empty for the model as it is."""
        return self.combination.budget

    def __repr__(self) -> str:
        if self.cannot is not None:
            return f"ResultRow({self.combination}: cannot, {self.cannot})"
        if self.summary is None:
            return f"ResultRow({self.combination}: not finished)"
        groups = ", ".join(
            f"{name} -" if value is None else f"{name} {value:.1%}"
            for name, value in self.summary.groups.items()
        )
        return f"ResultRow({self.combination}: {groups})"


def collect(plan: EvaluationPlan, results: ResultsStore) -> list[ResultRow]:
    """Read everything a table needs; what is not finished has no summary."""
    return [_collect_row(each, plan, results) for each in plan.combinations]


def find_unpruned(rows: Sequence[ResultRow]) -> ResultRow | None:
    """The row of the model as it is, None if it is not there or not finished."""
    return next((row for row in rows if row.combination.method is None and row.summary), None)


def find_average(row: ResultRow, unpruned: ResultRow | None) -> float | None:
    """The paper's "Avg." of a row, None where it is not defined."""
    if unpruned is None or unpruned.summary is None or row.summary is None:
        return None
    return average_against(row.summary, unpruned.summary)


def find_reference(row: ResultRow, rows: Sequence[ResultRow], name: str) -> ResultRow | None:
    """The row that this one is compared with, None if it is that itself or there is none.

    Parameters
    ----------
    row : ResultRow
        Which one.
    rows : sequence of ResultRow
        Where to look: the reference has the same budget.
    name : str
        The label of a combination, or else a method's name.
    """
    if row.combination.method is None:
        return None
    same = [
        (each, each.combination)
        for each in rows
        if each.summary is not None and each.combination.budget == row.combination.budget
    ]
    exact = [each for each, made in same if made.method is not None and made.goes_by(name)]
    alike = [each for each, made in same if made.method is not None and made.method.name == name]
    found = next(iter(exact or alike), None)
    return None if found is row else found


def list_troubles(rows: Sequence[ResultRow]) -> list[str]:
    """What is missing in a table of these rows, and why."""
    found = []
    for row in rows:
        if row.summary is not None and row.summary.failed:
            count = sum(map(len, row.records.values()))
            failed = row.summary.failed
            found.append(f"{row.combination}: {failed} of {count} examples failed, not scored.")
    unpruned = find_unpruned(rows)
    if unpruned is None or unpruned.summary is None:
        found.append("Avg. is not defined: the unpruned model has not answered all tasks yet.")
        return found
    zero = [task for task, score in unpruned.summary.accuracy.items() if not score]
    if zero:
        found.append(f"Avg. is not defined: the unpruned model has no score in {', '.join(zero)}.")
    return found


def list_warnings(rows: Sequence[ResultRow]) -> list[str]:
    """What makes the scores of these rows meaningless."""
    unpruned = find_unpruned(rows)
    if unpruned is None or unpruned.summary is None:
        return []
    zero = [task for task, score in unpruned.summary.accuracy.items() if score == 0]
    if not zero:
        return []
    return [
        f"The unpruned model scores 0 % in {', '.join(zero)}: scores relative to it are "
        "meaningless. Either the model does not know the task, or its answers are scored "
        f"incorrectly{_show_answer(unpruned.records[zero[0]])}."
    ]


def _show_answer(records: Sequence[Record]) -> str:
    """An answer beside the reference answers, to see which of the two it is."""
    for each in records:
        if each.answer is not None and each.answers:
            references = " or ".join(map(repr, each.answers))
            return f": for example, it answered {each.answer!r}, the reference is {references}"
    return ""


def _collect_row(
    combination: Combination, plan: EvaluationPlan, results: ResultsStore
) -> ResultRow:
    work = {task.name: Scoring(combination, task) for task in plan.tasks}
    done = {name: unit for name, unit in work.items() if results.is_finished(unit)}
    found = {name: results.read_scores(unit) for name, unit in done.items()}
    reasons = {name: each.cannot for name, each in found.items() if each.cannot is not None}
    if reasons:
        name, reason = next(iter(reasons.items()))
        where = "" if len(reasons) == len(work) else f"{name}: "
        return ResultRow(combination, {}, None, None, where + reason)
    records = {name: each.records for name, each in found.items()}
    summary = None
    if len(records) == len(work):
        overall = {name: each.overall for name, each in found.items() if each.overall is not None}
        summary = summarize(records, {task.name: task.group for task in plan.tasks}, overall)
    timed = 1.0 if combination.method is None else None
    timing = Timing(combination, plan.tasks[0])
    if plan.timed and combination.method is not None and results.is_finished(timing):
        timed = results.read_seconds(timing).ratio
    metrics = {name: each.metrics for name, each in found.items() if each.metrics}
    return ResultRow(combination, records, summary, timed, None, metrics)
