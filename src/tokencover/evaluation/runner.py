"""Does the units of a plan: puts a task's questions to a model, pruned or not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tokencover.errors import BudgetError, InputError, TokenCoverError
from tokencover.evaluation.answering import VisionLanguageModel
from tokencover.evaluation.partial_scores import PartialScores
from tokencover.evaluation.plan import Scoring, Work
from tokencover.evaluation.progress import Progress
from tokencover.evaluation.results_folder import Record, Scores
from tokencover.evaluation.results_memory import ResultsStore
from tokencover.evaluation.tasks import Example, Task, Total
from tokencover.evaluation.timing import time_first_tokens
from tokencover.families import family_of
from tokencover.pruning import EncoderMemory, Run, get_tensor_parallel_group, mark_text, prune

TRIED = 8
"""How many examples of a task, besides those of its first batch, must be refused by a method
before the method counts as one that cannot run."""


class ExampleError(TokenCoverError):
    """A model could not answer an example."""


@dataclass(frozen=True)
class AskingSettings:
    """How questions are asked.

    Attributes
    ----------
    batch_size : int
        Examples answered together.
    max_new_tokens : int
        Length of an answer.
    keep_going : bool
        Whether an example that fails is recorded as failed, instead of ending the run.
    """

    batch_size: int = 16
    max_new_tokens: int = 16
    keep_going: bool = False

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_new_tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}.")


@dataclass(frozen=True)
class Trouble:
    """Why an example failed, and whether the pruned model itself refused it."""

    example: Example
    error: Exception
    refused: bool

    @property
    def record(self) -> Record:
        """What the results say of it."""
        text = f"{type(self.error).__name__}: {self.error}"
        return Record(
            self.example.id,
            self.example.cluster,
            failed=text,
            question=self.example.question,
            answers=self.example.answers,
        )


def do_work(
    model: VisionLanguageModel,
    work: Sequence[Work],
    results: ResultsStore,
    settings: AskingSettings,
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
    results : ResultsFolder or ResultsInMemory
        Where they go.
    settings : AskingSettings
        How to ask.
    progress : Progress
        Who is told.
    timing_batches : int
        How many batches a `Timing` measures.
    """
    told: set[tuple[str, str]] = set()
    memory = EncoderMemory(model.model)
    with memory.attach():
        for unit in work:
            progress.begin(str(unit))
            if isinstance(unit, Scoring):
                saved = PartialScores(results, unit)
                scores = score(model, unit, settings, progress, memory, saved)
                results.write(unit, scores)
                _tell(unit, scores, progress, told)
            else:
                with memory.pause():
                    seconds = time_first_tokens(
                        model,
                        unit,
                        batches=timing_batches,
                        batch_size=settings.batch_size,
                        keep_going=settings.keep_going,
                    )
                results.write(unit, seconds)
            progress.finish()


def find_unfinished(work: Sequence[Work], results: ResultsStore) -> list[Work]:
    """The units that have no result; a file that cannot be read is an error, not one of these."""
    for unit in work:
        if results.is_finished(unit):
            results.check(unit)
            results.discard_partial(unit)  # killed between writing the result and deleting this
        elif isinstance(unit, Scoring):
            results.read_partial(unit)
    return [unit for unit in work if not results.is_finished(unit)]


def score(
    model: VisionLanguageModel,
    work: Scoring,
    settings: AskingSettings,
    progress: Progress | None = None,
    memory: EncoderMemory | None = None,
    saved: PartialScores | None = None,
) -> Scores:
    """Answer all questions of a task.

    Parameters
    ----------
    model : VisionLanguageModel
        Not pruned yet.
    work : Scoring
        Task and method.
    settings : AskingSettings
        How to ask.
    progress : Progress, optional
        Shows how many examples are answered.
    memory : EncoderMemory, optional
        Put on the model: images that it knows are not encoded again.
    saved : PartialScores, optional
        Where examples are saved before the unit is finished, and from where it resumes.

    Returns
    -------
    Scores
        A record for each example; or, if the method refuses to run on this model or at this
        budget, the reason. One example that would cost more than the budget is enough, unless
        `settings` say to keep going: a score without it would be of easier ones.

    Raises
    ------
    ExampleError
        If an example fails and `settings` do not say to keep going; it names the example.
    """
    examples = list(work.task.examples())
    with ExitStack() as stack:
        method, run, words = work.combination.method, None, None
        if method is not None:
            if any(example.prompt_words is not None for example in examples):
                words = _NamedWords(model.processor)
            try:
                run = stack.enter_context(
                    prune(model.model, method, prompt=words, processor=model.processor)
                )
            except InputError as error:
                return Scores(cannot=str(error))
            if memory is not None:
                stack.enter_context(run.recall_with(memory))
        asking = _Asking(model, work.task, run, settings, words)
        records = (
            [] if saved is None else saved.load(examples, settings.batch_size, settings.keep_going)
        )
        if progress is not None and records:
            progress.resume(len(records), len(examples))
        try:
            reason = _answer_rest(asking, work, examples, records, settings, progress, saved)
        except (ExampleError, KeyboardInterrupt):
            if saved is not None:
                saved.save(records, now=True)
            raise
    return _sum_up(work.task, examples, records) if reason is None else Scores(cannot=reason)


def _answer_rest(
    asking: _Asking,
    work: Scoring,
    examples: Sequence[Example],
    records: list[Record],
    settings: AskingSettings,
    progress: Progress | None,
    saved: PartialScores | None,
) -> str | None:
    """Answer the examples after those of `records`, and add theirs; returns why it cannot."""
    for first in range(len(records), len(examples), settings.batch_size):
        outcomes = asking.ask(examples[first : first + settings.batch_size])
        if first == 0 and (reason := asking.find_refusal(outcomes, examples)) is not None:
            return reason
        if not settings.keep_going and (reason := _find_missed_budget(outcomes)) is not None:
            return reason
        records += [_keep_or_raise(each, work, settings) for each in outcomes]
        if saved is not None:
            saved.save(records)
        if progress is not None:
            progress.advance(len(records), len(examples))
    return None


def _find_missed_budget(outcomes: Sequence[Record | Trouble]) -> str | None:
    """Why the budget cannot be met on one of the examples, if there is such a one."""
    return next(
        (
            f"example {each.example.id}: {each.error}"
            for each in outcomes
            if isinstance(each, Trouble) and isinstance(each.error, BudgetError)
        ),
        None,
    )


def _sum_up(task: Task, examples: Sequence[Example], records: Sequence[Record]) -> Scores:
    """What the task makes of its records; those that failed have no part in it."""
    pairs = zip(examples, records, strict=True)
    answered = [(example, record.answer) for example, record in pairs if record.answer is not None]
    total = Total() if task.sum_up is None or not answered else task.sum_up(answered)
    return Scores(tuple(records), overall=total.share, metrics=dict(total.metrics))


def _keep_or_raise(outcome: Record | Trouble, work: Scoring, settings: AskingSettings) -> Record:
    if isinstance(outcome, Record):
        return outcome
    if not settings.keep_going:
        why = (outcome.record.failed or "").rstrip(".")
        raise ExampleError(
            f"example {outcome.example.id} failed ({work}): {why}. Repair it, or let --keep-going "
            "count it as failed; the same command goes on from here."
        ) from outcome.error
    return outcome.record


def _tell(unit: Scoring, scores: Scores, progress: Progress, told: set[tuple[str, str]]) -> None:
    """Say what went wrong; a method that refuses all tasks for one reason, once."""
    name = str(unit.combination)
    if scores.cannot is not None and (name, scores.cannot) not in told:
        progress.note(f"{name}: cannot: {scores.cannot}")
        told.add((name, scores.cannot))
    for record in scores.records:
        if record.failed is not None:
            progress.note(f"{unit}: example {record.id} failed: {record.failed}")


class _NamedWords:
    """The words of a batch that a method is to read as the prompt: each example names its own."""

    def __init__(self, processor: Any) -> None:
        self._processor = processor
        self.texts: list[str] = []

    def __call__(self, input_ids: Tensor, visual: Tensor) -> Tensor:
        """Mark them in the ids that the model receives."""
        return mark_text(self._processor, input_ids, self.texts)


class _Asking:
    """A model, as it is or with a method at work on it."""

    def __init__(
        self,
        model: VisionLanguageModel,
        task: Task,
        run: Run | None,
        settings: AskingSettings,
        words: _NamedWords | None,
    ) -> None:
        self._model, self._task, self._run, self._settings = model, task, run, settings
        self._words = words
        self._length = task.max_new_tokens or settings.max_new_tokens

    def ask(self, batch: Sequence[Example]) -> list[Record | Trouble]:
        """Answer a batch; if that fails, each example alone, to see whose fault it is."""
        try:
            return list(self._make_records(batch, self._model.make_inputs(batch)))
        except Exception as error:
            self._end_all_ranks(error)
            alone = [self._ask_alone(example) for example in batch]
            if any(isinstance(each, Trouble) for each in alone) or self._settings.keep_going:
                return alone
            raise ExampleError(
                f"{self._task.name}: examples {batch[0].id} to {batch[-1].id} failed together, "
                f"though each works alone ({error}). Try a smaller --batch-size than "
                f"{self._settings.batch_size}, or --keep-going to ask these one by one."
            ) from error

    def find_refusal(
        self, outcomes: Sequence[Record | Trouble], examples: Sequence[Example]
    ) -> str | None:
        """Why the method refuses every example, as far as we tried; None if it does not."""
        if not all(isinstance(each, Trouble) and each.refused for each in outcomes):
            return None
        rest = examples[len(outcomes) :]
        for example in rest[:: max(1, len(rest) // TRIED)]:
            outcome = self._ask_alone(example)
            if not (isinstance(outcome, Trouble) and outcome.refused):
                return None
        first = outcomes[0]
        return str(first.error) if isinstance(first, Trouble) else None

    def _ask_alone(self, example: Example) -> Record | Trouble:
        try:
            inputs = self._model.make_inputs([example])
        except Exception as error:
            return Trouble(example, error, refused=False)
        try:
            return self._make_records([example], inputs)[0]
        except Exception as error:
            self._end_all_ranks(error)
            refused = self._run is not None and isinstance(error, InputError)
            return Trouble(example, error, refused)

    def _end_all_ranks(self, error: Exception) -> None:
        """Raise an error that other ranks of tensor parallelism may not have: they would wait."""
        shared = get_tensor_parallel_group(self._model.model) is not None
        if shared and not isinstance(error, InputError):
            raise error

    def _make_records(self, batch: Sequence[Example], inputs: Any) -> list[Record]:
        before = None if self._run is None else self._run.trace
        if self._words is not None:
            self._words.texts = [each.prompt_words or each.question for each in batch]
        said = self._model.answer(inputs, max_new_tokens=self._length)
        answers = map(self._task.cut, said)
        measured = self._measure(inputs, before)
        return [
            Record(
                example.id,
                example.cluster,
                answer,
                self._task.score(answer, example),
                *each,
                question=example.question,
                answers=example.answers,
            )
            for example, answer, each in zip(batch, answers, measured, strict=True)
        ]

    def _measure(self, inputs: Any, before: object) -> list[tuple[int, float, float]]:
        """Of each sample: tokens left, mean over blocks, operations as a share."""
        model: Any = self._model.model
        ids = torch.tensor(family_of(model).visual_ids(model.config))
        counts = torch.isin(inputs["input_ids"].cpu(), ids).sum(1).tolist()
        measured = [(int(count), float(count), 1.0) for count in counts]
        # A prompt without pictures leaves no trace: that of an earlier one is still there then.
        if self._run is not None and self._run.trace is not before:
            for each in self._run.trace:
                share = each.flops / each.flops_unpruned
                measured[each.sample] = len(each.kept), each.mean_tokens, share
        return measured
