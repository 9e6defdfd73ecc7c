"""Time to the first token, with and without pruning, in one run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from tokencover.errors import InputError
from tokencover.evaluation.answering import VisionLanguageModel
from tokencover.evaluation.plan import Timing
from tokencover.evaluation.results_folder import Seconds
from tokencover.evaluation.tasks import Example
from tokencover.methods import Method
from tokencover.pruning import prune


def time_first_tokens(
    model: VisionLanguageModel,
    work: Timing,
    *,
    batches: int,
    batch_size: int,
    keep_going: bool = False,
) -> Seconds:
    """Measure batches of a task by turns, unpruned and pruned, so that both meet the same load.

    Parameters
    ----------
    model : VisionLanguageModel
        Not pruned yet.
    work : Timing
        Task and method.
    batches : int
        How many; a short task is gone through again.
    batch_size : int
        Examples of each.
    keep_going : bool
        Whether any error is a reason why there are no times, and not the refusal of a method alone.

    Returns
    -------
    Seconds
        One number for each batch, or the reason why the method cannot run.
    """
    examples = list(work.task.examples())
    unpruned, pruned = [], []
    reasons = Exception if keep_going else InputError
    try:
        for number in range(batches):
            batch = _pick_batch(examples, number, batch_size)
            # A small prompt first: whatever happens once is not the method's.
            warm, timed = model.make_inputs(batch[:1]), model.make_inputs(batch)
            unpruned.append(_time_answers(model, None, warm, timed))
            pruned.append(_time_answers(model, work.combination.method, warm, timed))
    except reasons as error:
        return Seconds(cannot=str(error))
    return Seconds(tuple(unpruned), tuple(pruned))


def _pick_batch(examples: Sequence[Example], number: int, size: int) -> Sequence[Example]:
    first = number * size % len(examples)
    return examples[first : first + size] if first + size <= len(examples) else examples[:size]


def _time_answers(
    model: VisionLanguageModel, method: Method | None, warm: Any, timed: Any
) -> float:
    with ExitStack() as stack:
        if method is not None:
            stack.enter_context(prune(model.model, method, processor=model.processor))
        model.answer(warm, max_new_tokens=1)
        begin = time.perf_counter()
        model.answer(timed, max_new_tokens=1)  # ends with text on the CPU, so a GPU is done too
        return time.perf_counter() - begin
