"""From answers to numbers: scores of answers, summaries of records, rows of results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tokencover.errors import InputError
from tokencover.evaluation.plan import Combination, EvaluationPlan, Scoring, Timing
from tokencover.evaluation.records import Record, Scores, Seconds
from tokencover.evaluation.store import ResultsStore
from tokencover.evaluation.tasks import Example
from tokencover.statistics import Interval, compute_paired_difference

UNGROUPED: Final = "all"
"""The group of tasks that name none."""

Records = Mapping[str, Sequence[Record]]
"""By task."""

# ---- scores of answers ----------------------------------------------------------------------


def normalize(text: str) -> str:
    """Lower case, without punctuation and blanks at either end and without doubled blanks."""
    return re.sub(r"\s+", " ", text).strip(" .,!?;:'\"").lower()


def score_exact(answer: str, example: Example) -> float:
    """1 if the answer equals a reference answer, up to case and punctuation."""
    return float(normalize(answer) in map(normalize, example.answers))


def score_contains(answer: str, example: Example) -> float:
    """1 if the answer contains a reference answer as whole words."""
    given = normalize(answer)
    references = filter(None, map(normalize, example.answers))
    # Not \b: an answer may begin or end with a sign, as "$5" does.
    return float(any(re.search(rf"(?<!\w){re.escape(text)}(?!\w)", given) for text in references))


def score_vqa(answer: str, example: Example) -> float:
    """The soft accuracy of VQA: a third for each person who gave this answer, at most 1.

    It is the mean over leaving each person out, as the benchmark defines it.
    """
    people = [normalize(each) for each in example.answers]
    given = normalize(answer)
    scores = [
        min(1.0, sum(other == given for other in people[:index] + people[index + 1 :]) / 3)
        for index in range(len(people))
    ]
    return sum(scores) / len(scores)


SCORES: Final = {"exact": score_exact, "contains": score_contains, "vqa": score_vqa}
"""By the name that a task file uses."""

# ---- summaries of records -------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """The numbers of one row; means over examples that did not fail, with equal weight per task.

    `accuracy` is by task, None if all its examples failed; `groups` is by group, None if one of its
    tasks has no score; `headings` has the heading of each group's column. `failed` counts examples.
    """

    accuracy: Mapping[str, float | None]
    groups: Mapping[str, float | None]
    headings: Mapping[str, str]
    tokens: float | None
    mean_tokens: float | None
    flops: float | None
    failed: int


def summarize(
    records: Records, groups: Mapping[str, str], overall: Mapping[str, float] | None = None
) -> Summary:
    """Summarize one row; `overall` has the scores of tasks that are not the mean score."""
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
    """The group's name, or the name of its only task where that is more informative."""
    is_alone = len(tasks) == 1 and (count == 1 or group == UNGROUPED)
    return tasks[0] if is_alone else group


def average_relative(scores: Mapping[str, float], vanilla: Mapping[str, float]) -> float:
    """The paper's "Avg.": mean over a row's benchmarks of score / unpruned score, in percent.

    Both mappings are by benchmark; only those of `scores` count. Raises `InputError` if the
    unpruned model has no score, or 0, in one of them.
    """
    undefined = [name for name in scores if not vanilla.get(name)]
    if undefined or not scores:
        raise InputError(
            "an average relative to the unpruned model is not defined: it scores nothing in "
            f"{', '.join(undefined) or 'no benchmark at all'}. Leave these out, or evaluate more "
            "examples."
        )
    return 100 * sum(score / vanilla[name] for name, score in scores.items()) / len(scores)


def average_all(values: Sequence[float | None]) -> float | None:
    """The mean, None if a value is missing: a mean of the rest would mean something else."""
    return None if any(value is None for value in values) else _average_known(values)


def _average_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


# ---- rows -----------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class ResultRow:
    """The results of one method at one budget.

    Attributes
    ----------
    combination : Combination
        Method and budget.
    records : mapping
        By task; empty if the method cannot run on one of them.
    summary : Summary, optional
        Of the records; None if the method cannot run, or has not finished.
    first_token : float, optional
        Time to the first token, as a fraction of that without pruning.
    cannot : str, optional
        Why the method cannot run.
    metrics : mapping
        By task: all metrics of a benchmark, by its own names and on its own scales.
    """

    combination: Combination
    records: Records
    summary: Summary | None
    first_token: float | None
    cannot: str | None
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def method(self) -> str:
        """The method with its settings, ``fastv:after=3``; "unpruned" for the unpruned model."""
        return self.combination.label

    @property
    def budget(self) -> str:
        """The budget as it was given; empty for the unpruned model."""
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
    """Return the rows of a plan; what is not finished has no summary."""
    groups = {task.name: task.group for task in plan.tasks}
    rows = []
    for combination in plan.combinations:
        units = [Scoring(combination, task) for task in plan.tasks]
        scores = {unit.task.name: results.read(unit) for unit in units if results.is_finished(unit)}
        timing, seconds = Timing(combination, plan.tasks[0]), None
        if plan.timed and combination.method is not None and results.is_finished(timing):
            seconds = results.read(timing)
        rows.append(build_row(combination, scores, seconds, groups))
    return rows


def build_row(
    combination: Combination,
    scores: Mapping[str, Scores],
    seconds: Seconds | None,
    groups: Mapping[str, str],
) -> ResultRow:
    """Build a row from the finished units of a combination; `groups` names all tasks."""
    reasons = {task: scores[task].cannot for task in groups if task in scores}
    reasons = {task: reason for task, reason in reasons.items() if reason is not None}
    if reasons:
        task, reason = next(iter(reasons.items()))
        where = "" if len(reasons) == len(groups) else f"{task}: "
        return ResultRow(combination, {}, None, None, f"{where}{reason}")
    records = {task: scores[task].records for task in groups if task in scores}
    summary = None
    if len(records) == len(groups):
        overall = {task: each.overall for task, each in scores.items() if each.overall is not None}
        summary = summarize(records, groups, overall)
    first_token = 1.0 if combination.method is None else None
    first_token = first_token if seconds is None else seconds.ratio
    metrics = {task: each.metrics for task, each in scores.items() if each.metrics}
    return ResultRow(combination, records, summary, first_token, None, metrics)


def get_unpruned(rows: Sequence[ResultRow]) -> ResultRow | None:
    """Return the row of the unpruned model, None if it is missing or not finished."""
    return next((row for row in rows if row.combination.method is None and row.summary), None)


def compute_relative_average(row: ResultRow, unpruned: ResultRow | None) -> float | None:
    """Return the paper's "Avg." of a row, None where it is not defined."""
    if unpruned is None or unpruned.summary is None or row.summary is None:
        return None
    accuracy = row.summary.accuracy
    scores = {task: value for task, value in accuracy.items() if value is not None}
    vanilla = {task: value for task, value in unpruned.summary.accuracy.items() if value}
    complete = len(scores) == len(accuracy) and set(scores) <= set(vanilla)
    return average_relative(scores, vanilla) if complete and scores else None


def compute_difference(row: ResultRow, reference: ResultRow | None) -> Interval | None:
    """Return the accuracy minus that of another row, mean over tasks; None if unknown."""
    if reference is None:
        return None
    for task, records in row.records.items():
        pairs = zip(records, reference.records[task], strict=False)
        if not any(one.failed is None and two.failed is None for one, two in pairs):
            return None
    return compute_paired_difference(row.records, reference.records)


def get_reference(row: ResultRow, rows: Sequence[ResultRow], name: str) -> ResultRow | None:
    """Return the row of the same budget with a label, or else with a method's name.

    None if there is none, or if it is this row.
    """
    if row.combination.method is None:
        return None
    same = [
        (other, other.combination)
        for other in rows
        if other.summary is not None and other.combination.budget == row.combination.budget
    ]
    exact = [other for other, made in same if made.method is not None and made.goes_by(name)]
    alike = [other for other, made in same if made.method is not None and made.method.name == name]
    reference = next(iter(exact or alike), None)
    return None if reference is row else reference


def list_missing(rows: Sequence[ResultRow]) -> list[str]:
    """Say what is missing in a table of these rows, and why."""
    missing = []
    for row in rows:
        if row.summary is not None and row.summary.failed:
            count = sum(map(len, row.records.values()))
            failed = row.summary.failed
            missing.append(f"{row.combination}: {failed} of {count} examples failed, not scored.")
    unpruned = get_unpruned(rows)
    if unpruned is None or unpruned.summary is None:
        missing.append("Avg. is not defined: the unpruned model has not answered all tasks yet.")
        return missing
    zero = [task for task, score in unpruned.summary.accuracy.items() if not score]
    if zero:
        names = ", ".join(zero)
        missing.append(f"Avg. is not defined: the unpruned model has no score in {names}.")
    return missing


def list_warnings(rows: Sequence[ResultRow]) -> list[str]:
    """Warn of tasks in which the unpruned model scores 0."""
    unpruned = get_unpruned(rows)
    if unpruned is None or unpruned.summary is None:
        return []
    zero = [task for task, score in unpruned.summary.accuracy.items() if score == 0]
    if not zero:
        return []
    return [
        f"The unpruned model scores 0 % in {', '.join(zero)}: scores relative to it are "
        "meaningless. Either the model does not know the task, or its answers are scored "
        f"incorrectly{_quote_answer(unpruned.records[zero[0]])}."
    ]


def _quote_answer(records: Sequence[Record]) -> str:
    """An answer with the reference answers, which shows which of the two it is."""
    for record in records:
        if record.answer is not None and record.answers:
            references = " or ".join(map(repr, record.answers))
            return f": for example, it answered {record.answer!r}, the reference is {references}"
    return ""
