"""Does the units of a plan that are not done yet."""

from __future__ import annotations

from collections.abc import Sequence

from tokencover.evaluation.loading import VisionLanguageModel
from tokencover.evaluation.plan import Plan, Scoring, Work
from tokencover.evaluation.progress import Progress
from tokencover.evaluation.results import Results, Scores
from tokencover.evaluation.runner import Settings, score
from tokencover.evaluation.timing import first_token_times


def evaluate(
    model: VisionLanguageModel,
    work: Sequence[Work],
    results: Results,
    settings: Settings,
    progress: Progress,
    *,
    timing_batches: int,
) -> None:
    """Do all units, and write each as soon as it is done.

    Parameters
    ----------
    model : VisionLanguageModel
        Not pruned.
    work : sequence of Work
        Units to do, in this order.
    results : Results
        Where they go.
    settings : Settings
        How to ask.
    progress : Progress
        Who is told.
    timing_batches : int
        How many batches a `Timing` measures.
    """
    told: set[tuple[str, str]] = set()
    for unit in work:
        progress.begin(str(unit))
        if isinstance(unit, Scoring):
            scores = score(model, unit, settings, progress.advance)
            results.write(unit, scores)
            _tell(unit, scores, progress, told)
        else:
            seconds = first_token_times(
                model,
                unit,
                batches=timing_batches,
                batch_size=settings.batch_size,
                keep_going=settings.keep_going,
            )
            results.write(unit, seconds)
        progress.finish()


def unfinished(work: Sequence[Work], results: Results) -> list[Work]:
    """The units that have no result; a result that cannot be read is an error, not one of these."""
    for unit in work:
        if results.finished(unit):
            results.check(unit)
    return [unit for unit in work if not results.finished(unit)]


def is_complete(plan: Plan, results: Results) -> bool:
    """Whether all units of a plan are done, by whomever."""
    return all(results.finished(unit) for unit in plan.work)


def _tell(unit: Scoring, scores: Scores, progress: Progress, told: set[tuple[str, str]]) -> None:
    """Say what went wrong; a method that refuses all tasks for one reason, once."""
    name = str(unit.combination)
    if scores.cannot is not None and (name, scores.cannot) not in told:
        progress.note(f"{name}: cannot: {scores.cannot}")
        told.add((name, scores.cannot))
    for record in scores.records:
        if record.failed is not None:
            progress.note(f"{unit}: example {record.id} failed: {record.failed}")
