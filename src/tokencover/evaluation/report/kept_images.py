"""Kept tokens drawn on images: the model answers a few examples again."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from PIL import Image

from tokencover.errors import InputError
from tokencover.evaluation.answering import VisionLanguageModel
from tokencover.evaluation.plan import UNPRUNED, Combination
from tokencover.evaluation.report.changes import ChangedAnswer, list_changes
from tokencover.evaluation.report.report_charts import RIVALS
from tokencover.evaluation.results import Results
from tokencover.evaluation.scoring import ResultRow, compute_relative_average
from tokencover.evaluation.tasks import Example, Task
from tokencover.methods import Method
from tokencover.pruning import prune
from tokencover.visualization import hover_html, medium_as_seen, plain_html, words_of_centers

IMAGE_REFERENCE: Final = re.compile(r'(href|src)="(data:image/[^"]+)"')
"""An image in a piece of a web page."""


@dataclass(frozen=True, slots=True)
class KeptExample:
    """An example with the tokens that methods kept of it, as pieces of a web page.

    `right` has the reference answers, `change` is "lost" or "won" by pruning or empty; the first of
    `sides` is the unpruned model.
    """

    task: str
    example: str
    question: str
    right: str
    change: str
    sides: tuple[KeptSide, ...]


@dataclass(frozen=True, slots=True)
class KeptSide:
    """A method with its budget, the answer, and the image with its kept tokens in HTML."""

    method: str
    budget: str
    answer: str
    figure: str


DEFAULT_LENGTH: Final = 16
"""New tokens of an answer, where the task does not fix it."""


def select_rows(stored: Results, reference: str) -> list[ResultRow]:
    """Return the reference at its smallest budget with results, and the best methods there.

    Raises `InputError` if there are no results of the reference.
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
    best = sorted(rivals, key=lambda row: -(compute_relative_average(row, stored.unpruned) or 0.0))
    return [mine, *best[:RIVALS]]


def list_changed_answers(stored: Results, row: ResultRow) -> list[ChangedAnswer]:
    """List the answers that a row lost against the unpruned model, then those that it won."""
    if stored.unpruned is None:
        return []
    return sorted(list_changes(row, stored.unpruned), key=lambda each: each.change)


def draw_kept_images(
    model: VisionLanguageModel,
    methods: Sequence[Method],
    tasks: Sequence[Task],
    count: int,
    changed: Sequence[ChangedAnswer] = (),
) -> list[KeptExample]:
    """Answer `count` examples again, unpruned and with each method, and draw the kept tokens.

    Examples of `changed` come first, interleaved by task; then examples of each task in turn.
    """
    chosen = list(_choose_examples(tasks, changed, count))
    return [_draw(model, methods, *each) for each in chosen]


def explain_missing(drawn: Sequence[KeptExample], count: int) -> str:
    """Say why fewer examples were drawn than the `count` requested; empty if all were."""
    shown = sum(any("<svg" in side.figure for side in each.sides) for each in drawn)
    reasons = []
    if len(drawn) < count:
        has = "example" if len(drawn) == 1 else "examples"
        reasons.append(f"the tasks have {len(drawn) or 'no'} {has}")
    if shown < len(drawn):
        reasons.append(
            f"{len(drawn) - shown} cannot be drawn because the prompt has no image, or the model "
            "was shown tiles whose positions are unknown"
        )
    return f"{shown} of {count} examples drawn; {'; '.join(reasons)}." if reasons else ""


def _choose_examples(
    tasks: Sequence[Task], changed: Sequence[ChangedAnswer], count: int
) -> Iterator[tuple[Task, Example, str]]:
    """Changed answers, then the first example of each task, the second of each, and so on."""
    examples = {(task.name, each.id): (task, each) for task in tasks for each in task.examples()}
    changes = {(each.task, each.example): each.change for each in _interleave(changed)}
    chosen = [key for key in changes if key in examples]
    turns = itertools.zip_longest(
        *([key for key in examples if key[0] == task.name] for task in tasks)
    )
    chosen += [key for turn in turns for key in turn if key is not None and key not in changes]
    for key in chosen[:count]:
        yield *examples[key], changes.get(key, "")


def _interleave(changed: Sequence[ChangedAnswer]) -> list[ChangedAnswer]:
    """The first of each task, then the second of each."""
    turns: Counter[str] = Counter()
    placed: list[tuple[int, int, ChangedAnswer]] = []
    for each in changed:
        placed.append((turns[each.task], len(placed), each))
        turns[each.task] += 1
    return [each for _, _, each in sorted(placed, key=lambda entry: entry[:2])]


def _draw(
    model: VisionLanguageModel, methods: Sequence[Method], task: Task, example: Example, change: str
) -> KeptExample:
    whole = _draw_whole(model, task, example)
    sides = [_deduplicate_images(_draw_side(model, each, task, example), whole) for each in methods]
    right = ", ".join(example.answers)
    return KeptExample(task.name, example.id, example.question, right, change, (whole, *sides))


def _deduplicate_images(side: KeptSide, whole: KeptSide) -> KeptSide:
    """The side without images of the unpruned side, to which it refers: the page stays small."""
    shared = [found[2] for found in IMAGE_REFERENCE.finditer(whole.figure)]

    def refer(found: re.Match[str]) -> str:
        return f'data-same="{shared.index(found[2])}"' if found[2] in shared else found[0]

    return replace(side, figure=IMAGE_REFERENCE.sub(refer, side.figure))


def _draw_whole(model: VisionLanguageModel, task: Task, example: Example) -> KeptSide:
    """The image as the processor prepares it, without pruning."""
    answer = _answer(model, task, model.make_inputs([example]))
    figures = []
    for medium in example.media:
        prepared = medium_as_seen(medium, model.processor)
        images = [prepared] if isinstance(prepared, Image.Image) else list(prepared)
        figures.append(plain_html(images))
    return KeptSide(UNPRUNED, "", answer, "".join(figures))


def _answer(model: VisionLanguageModel, task: Task, inputs: Any) -> str:
    """The answer, with the length and the stops of the evaluation."""
    answers = model.answer(inputs, max_new_tokens=task.max_new_tokens or DEFAULT_LENGTH)
    return task.cut(answers[0])


def _draw_side(
    model: VisionLanguageModel, method: Method, task: Task, example: Example
) -> KeptSide:
    inputs = model.make_inputs([example])
    prompt = example.prompt_words  # the same as in the evaluation
    with prune(model.model, method, prompt=prompt, processor=model.processor) as run:
        answer = _answer(model, task, inputs)
    combination = Combination(method)
    name = combination.label, combination.budget
    if not run.trace:
        return KeptSide(*name, answer, "<p>This prompt has no image.</p>")
    trace = run.trace[0]
    media = example.media
    if len({medium for medium, _ in trace.grids}) != len(media):
        text = "<p>Not drawn: the processor splits the image into tiles.</p>"
        return KeptSide(*name, answer, text)
    words = words_of_centers(trace, inputs["input_ids"], model.processor)
    figures = [
        hover_html(medium_as_seen(each, model.processor), trace, words, medium=number)
        for number, each in enumerate(media)
    ]
    return KeptSide(*name, answer, "".join(figures))
