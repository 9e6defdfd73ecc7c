"""What was kept, on the pictures themselves: the model looks again at a few examples."""

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
from tokencover.evaluation.report.answer_changes import ChangedAnswer, find_changes
from tokencover.evaluation.report.chart_rows import RIVALS
from tokencover.evaluation.result_rows import ResultRow, find_average
from tokencover.evaluation.results import Results
from tokencover.evaluation.tasks import Example, Task
from tokencover.methods import Method
from tokencover.pruning import prune
from tokencover.visualization import hover_html, medium_as_seen, plain_html, words_of_centers

PICTURE_PLACE: Final = re.compile(r'(href|src)="(data:image/[^"]+)"')
"""Where a picture stands in a piece of a web page."""


@dataclass(frozen=True, slots=True)
class KeptExample:
    """An example with what methods kept of it, as pieces of a web page.

    Attributes
    ----------
    task, example : str
        Which question; the example's id.
    question, right : str
        What was asked, and what is right.
    change : str
        "lost" or "won" by pruning; empty if neither.
    sides : tuple of KeptSide
        The model as it is, then each method.
    """

    task: str
    example: str
    question: str
    right: str
    change: str
    sides: tuple[KeptSide, ...]


@dataclass(frozen=True, slots=True)
class KeptSide:
    """What one method kept and answered.

    Attributes
    ----------
    method, budget : str
        As the tables name them.
    answer : str
        What the model said.
    figure : str
        The picture with its kept tokens, in HTML.
    """

    method: str
    budget: str
    answer: str
    figure: str


DEFAULT_LENGTH: Final = 16
"""New tokens of an answer, where the task does not fix it."""


def choose_rows(stored: Results, reference: str) -> list[ResultRow]:
    """The reference method with the smallest budget that has results, and its best rivals there.

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
    return [mine, *best[:RIVALS]]


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
) -> list[KeptExample]:
    """Let the model look at examples again, as it is and with each method.

    Parameters
    ----------
    model : VisionLanguageModel
        Looks at them again.
    methods : sequence of Method
        Those to compare.
    tasks : sequence of Task
        Where the examples are.
    count : int
        How many.
    telling : sequence of ChangedAnswer
        Which to draw first, task after task; then examples of each task in turn.
    """
    chosen = list(_choose_examples(tasks, telling, count))
    return [_draw(model, methods, *each) for each in chosen]


def explain_missing(drawn: Sequence[KeptExample], count: int) -> str:
    """Say why fewer examples were drawn than requested; empty if all were.

    Parameters
    ----------
    drawn : sequence of KeptExample
        From `draw_kept_pictures`.
    count : int
        How many were requested.
    """
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
    return f"--images {count}: {shown} drawn; {'; '.join(reasons)}." if reasons else ""


def _choose_examples(
    tasks: Sequence[Task], telling: Sequence[ChangedAnswer], count: int
) -> Iterator[tuple[Task, Example, str]]:
    """Those that tell most, then the first of each task, the second of each, and so on."""
    examples = {(task.name, each.id): (task, each) for task in tasks for each in task.examples()}
    changes = {(each.task, each.example): each.change for each in _take_turns(telling)}
    chosen = [key for key in changes if key in examples]
    turns = itertools.zip_longest(
        *([key for key in examples if key[0] == task.name] for task in tasks)
    )
    chosen += [key for turn in turns for key in turn if key is not None and key not in changes]
    for key in chosen[:count]:
        yield *examples[key], changes.get(key, "")


def _take_turns(telling: Sequence[ChangedAnswer]) -> list[ChangedAnswer]:
    """The first of each task, then the second of each: no task crowds out the others."""
    turns: Counter[str] = Counter()
    placed: list[tuple[int, int, ChangedAnswer]] = []
    for each in telling:
        placed.append((turns[each.task], len(placed), each))
        turns[each.task] += 1
    return [each for _, _, each in sorted(placed, key=lambda entry: entry[:2])]


def _draw(
    model: VisionLanguageModel,
    methods: Sequence[Method],
    task: Task,
    example: Example,
    change: str,
) -> KeptExample:
    whole = _draw_whole(model, task, example)
    sides = [_share_pictures(_draw_side(model, each, task, example), whole) for each in methods]
    right = ", ".join(example.answers)
    return KeptExample(task.name, example.id, example.question, right, change, (whole, *sides))


def _share_pictures(side: KeptSide, whole: KeptSide) -> KeptSide:
    """The side without its pictures, which the page takes from the whole one: it stays small."""
    shared = [found[2] for found in PICTURE_PLACE.finditer(whole.figure)]

    def refer(found: re.Match[str]) -> str:
        return f'data-same="{shared.index(found[2])}"' if found[2] in shared else found[0]

    return replace(side, figure=PICTURE_PLACE.sub(refer, side.figure))


def _draw_whole(model: VisionLanguageModel, task: Task, example: Example) -> KeptSide:
    """The picture as the model sees it without pruning."""
    answer = _answer(model, task, model.make_inputs([example]))
    figures = []
    for medium in example.media:
        seen = medium_as_seen(medium, model.processor)
        pictures = [seen] if isinstance(seen, Image.Image) else list(seen)
        figures.append(plain_html(pictures))
    return KeptSide(UNPRUNED, "", answer, "".join(figures))


def _answer(model: VisionLanguageModel, task: Task, inputs: Any) -> str:
    """What the model says, as long and cut as it was when it was evaluated."""
    said = model.answer(inputs, max_new_tokens=task.max_new_tokens or DEFAULT_LENGTH)
    return task.cut(said[0])


def _draw_side(
    model: VisionLanguageModel, method: Method, task: Task, example: Example
) -> KeptSide:
    inputs = model.make_inputs([example])
    words_read = example.prompt_words  # those that the method read when it was evaluated
    with prune(model.model, method, prompt=words_read, processor=model.processor) as run:
        answer = _answer(model, task, inputs)
    combination = Combination(method)
    name = combination.label, combination.budget
    if not run.trace:
        return KeptSide(*name, answer, "<p>This prompt has no picture.</p>")
    trace = run.trace[0]
    media = example.media
    if len({medium for medium, _ in trace.grids}) != len(media):
        told = "<p>Not drawn: the model was shown crops of the picture.</p>"
        return KeptSide(*name, answer, told)
    words = words_of_centers(trace, inputs["input_ids"], model.processor)
    figures = [
        hover_html(medium_as_seen(each, model.processor), trace, words, medium=number)
        for number, each in enumerate(media)
    ]
    return KeptSide(*name, answer, "".join(figures))
