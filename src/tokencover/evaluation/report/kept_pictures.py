"""What was kept, on the pictures themselves: the model looks again at a few examples."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tokencover.errors import InputError
from tokencover.evaluation.answering import VisionLanguageModel
from tokencover.evaluation.results import Results
from tokencover.evaluation.tasks import Example, Task
from tokencover.methods import Method
from tokencover.runtime import prune
from tokencover.viewing import hover_html, medium_as_seen, words_of_centers


def choose_method(stored: Results, reference: str) -> Method:
    """The reference method with the smallest budget that has results.

    Raises
    ------
    InputError
        If there are no results of it.
    """
    found = [
        (row.summary.tokens, row.combination.method)
        for row in stored.rows
        if row.combination.goes_by(reference)
        and row.combination.method is not None
        and row.summary is not None
        and row.summary.tokens is not None
    ]
    if not found:
        raise InputError(f"there are no results of {reference}: give another --reference.")
    return min(found, key=lambda each: each[0])[1]


def draw_kept_pictures(
    model: VisionLanguageModel, method: Method, tasks: Sequence[Task], count: int
) -> list[str]:
    """The first example of each of the first `count` tasks, as pieces of a web page."""
    shown = ((task, next(iter(task.examples()))) for task in tasks[:count])
    return [_draw(model, method, task, example) for task, example in shown]


def _draw(model: VisionLanguageModel, method: Method, task: Task, example: Example) -> str:
    inputs = model.make_inputs([example])
    with prune(model.model, method, processor=model.processor) as run:
        answer = model.answer(inputs)[0]
    heading = (
        f"<p>{escape(task.name)}: <strong>{escape(example.question)}</strong> {escape(answer)} "
        f"(right: {escape(', '.join(example.answers))})</p>"
    )
    if not run.trace:
        return f"<div>{heading}<p>This prompt has no picture.</p></div>"
    trace = run.trace[0]
    media = example.media
    if len({medium for medium, _ in trace.grids}) != len(media):
        return f"<div>{heading}<p>Not drawn: the model was shown crops of the picture.</p></div>"
    words = words_of_centers(trace, inputs["input_ids"], model.processor)
    figures = [
        hover_html(medium_as_seen(each, model.processor), trace, words, medium=number)
        for number, each in enumerate(media)
    ]
    return f"<div>{heading}{''.join(figures)}</div>"
