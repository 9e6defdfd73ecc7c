"""What was kept, on the pictures themselves: the model looks again at a few examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from tokencover.errors import InputError
from tokencover.evaluation.answering import VisionLanguageModel
from tokencover.evaluation.report.answer_changes import ChangedAnswer, find_changes
from tokencover.evaluation.result_rows import ResultRow, find_average
from tokencover.evaluation.results import Results
from tokencover.evaluation.tasks import Example, Task
from tokencover.methods import Method, name_method
from tokencover.runtime import prune
from tokencover.viewing import hover_html, medium_as_seen, words_of_centers

DEFAULT_LENGTH: Final = 16
"""New tokens of an answer, where the task does not fix it."""


def choose_rows(stored: Results, reference: str) -> list[ResultRow]:
    """The reference method with the smallest budget that has results, and its best rival there.

    Raises
    ------
    InputError
        If there are no results of it.
    """
    found = [
        row
        for row in stored.rows
        if row.combination.goes_by(reference)
        and row.combination.method is not None
        and row.summary is not None
        and row.summary.tokens is not None
    ]
    if not found:
        raise InputError(f"there are no results of {reference}: give another --reference.")
    mine = min(found, key=lambda row: (row.summary and row.summary.tokens) or 0.0)
    rivals = [
        row
        for row in stored.rows
        if row.summary is not None
        and row.combination.method is not None
        and row.combination.budget == mine.combination.budget
        and row is not mine
    ]
    best = sorted(rivals, key=lambda row: -(find_average(row, stored.unpruned) or 0.0))
    return [mine, *best[:1]]


def list_telling_examples(stored: Results, row: ResultRow) -> list[ChangedAnswer]:
    """What a row lost against the unpruned model, then what it won."""
    if stored.unpruned is None:
        return []
    return sorted(find_changes(row, stored.unpruned), key=lambda each: each.change)


def draw_kept_pictures(
    model: VisionLanguageModel,
    methods: Sequence[Method],
    tasks: Sequence[Task],
    count: int,
    telling: Sequence[ChangedAnswer] = (),
) -> list[str]:
    """Examples as pieces of a web page, with what each method kept side by side.

    Parameters
    ----------
    model : VisionLanguageModel
        Looks at them again.
    methods : sequence of Method
        One, or two to compare.
    tasks : sequence of Task
        Where the examples are.
    count : int
        How many.
    telling : sequence of ChangedAnswer
        Which to draw first; then the first example of each task.
    """
    chosen = list(_choose_examples(tasks, telling, count))
    return [_draw(model, methods, *each) for each in chosen]


def _choose_examples(
    tasks: Sequence[Task], telling: Sequence[ChangedAnswer], count: int
) -> Iterator[tuple[Task, Example, str]]:
    named = {task.name: task for task in tasks}
    wanted = [each for each in telling if each.task in named][:count]
    for each in wanted:
        task = named[each.task]
        example = next((one for one in task.examples() if one.id == each.example), None)
        if example is not None:
            yield task, example, each.change
    for task in tasks[: count - len(wanted)]:
        yield task, next(iter(task.examples())), ""


def _draw(
    model: VisionLanguageModel,
    methods: Sequence[Method],
    task: Task,
    example: Example,
    change: str,
) -> str:
    mark = f' <span class="{escape(change)}">{escape(change)} by pruning</span>' if change else ""
    heading = (
        f"<h3>{escape(task.name)}: {escape(example.question)}</h3>"
        f"<p>right: {escape(', '.join(example.answers))}{mark}</p>"
    )
    sides = "".join(_draw_side(model, method, task, example) for method in methods)
    return f'<div>{heading}<div class="pair">{sides}</div></div>'


def _draw_side(model: VisionLanguageModel, method: Method, task: Task, example: Example) -> str:
    inputs = model.make_inputs([example])
    # The words that the method read when it was evaluated, and an answer as long as then.
    words_read = example.prompt_words
    with prune(model.model, method, prompt=words_read, processor=model.processor) as run:
        said = model.answer(inputs, max_new_tokens=task.max_new_tokens or DEFAULT_LENGTH)
        answer = task.cut(said[0])
    heading = f"<p><strong>{escape(name_method(method))}</strong>: {escape(answer)}</p>"
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
