"""Runs the units of a plan: answers a task's questions, pruned or not, and times first tokens."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from tokencover.errors import BudgetError, InputError, TokenCoverError
from tokencover.evaluation.answering import VisionLanguageModel
from tokencover.evaluation.plan import Scoring, Timing, Work
from tokencover.evaluation.progress import Progress
from tokencover.evaluation.records import Record, Scores, Seconds
from tokencover.evaluation.store import PartialScores, ResultsStore
from tokencover.evaluation.tasks import Example, Task, Total
from tokencover.families import family_of
from tokencover.methods import Method
from tokencover.pruning import EncoderMemory, Run, get_tensor_parallel_group, mark_text, prune

TRIED: Final = 8
"""Examples of a task, besides those of its first batch, that a method must reject before it counts
as one that cannot run."""


class ExampleError(TokenCoverError):
    """A model could not answer an example."""


@dataclass(frozen=True)
class GenerationSettings:
    """How questions are answered.

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
class ExampleFailure:
    """Why an example failed, and whether the method rejected it."""

    example: Example
    error: Exception
    rejected: bool

    @property
    def record(self) -> Record:
        """The record of a failed example."""
        given, text = self.example, f"{type(self.error).__name__}: {self.error}"
        return Record(
            given.id, given.cluster, failed=text, question=given.question, answers=given.answers
        )


def do_work(
    model: VisionLanguageModel,
    work: Sequence[Work],
    results: ResultsStore,
    settings: GenerationSettings,
    progress: Progress,
    *,
    timing_batches: int,
) -> None:
    """Run all units in order, and write each as soon as it is done.

    `model` is not pruned; a `Timing` measures `timing_batches` batches.
    """
    reported: set[tuple[str, str]] = set()
    memory = EncoderMemory(model.model)
    with memory.attach():
        for unit in work:
            progress.begin(str(unit))
            if isinstance(unit, Scoring):
                saved = PartialScores(results, unit)
                scores = score(model, unit, settings, progress, memory, saved)
                results.write(unit, scores)
                _report_failures(unit, scores, progress, reported)
            else:
                with memory.pause():
                    seconds = time_first_tokens(model, unit, settings, batches=timing_batches)
                results.write(unit, seconds)
            progress.finish()


def list_pending_units(work: Sequence[Work], results: ResultsStore) -> list[Work]:
    """List units without a result; raises `ResultsError` if a file cannot be read."""
    for unit in work:
        if results.is_finished(unit):
            results.read(unit)
            results.discard_partial(unit)  # killed between writing the result and deleting this
        elif isinstance(unit, Scoring):
            results.read_partial(unit)
    return [unit for unit in work if not results.is_finished(unit)]


def score(
    model: VisionLanguageModel,
    work: Scoring,
    settings: GenerationSettings,
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
    settings : GenerationSettings
        Batch size, answer length, and what to do about failures.
    progress : Progress, optional
        Shows how many examples are answered.
    memory : EncoderMemory, optional
        Registered on the model: images that it has are not encoded again.
    saved : PartialScores, optional
        Where examples are saved before the unit is finished, and from where it resumes.

    Returns
    -------
    Scores
        A record for each example; or, if the method cannot run on this model or at this budget,
        the reason. One example that would cost more than the budget is enough, unless `settings`
        keep going: a score without it would be of easier ones.

    Raises
    ------
    ExampleError
        If an example fails and `settings` do not keep going; it names the example.
    """
    examples = list(work.task.examples())
    with ExitStack() as stack:
        method, run, prompts = work.combination.method, None, None
        if method is not None:
            if any(example.prompt_words is not None for example in examples):
                prompts = _PromptSelector(model.processor)
            try:
                run = stack.enter_context(
                    prune(model.model, method, prompt=prompts, processor=model.processor)
                )
            except InputError as error:
                return Scores(cannot=str(error))
            if memory is not None:
                stack.enter_context(run.recall_with(memory))
        answerer = _Answerer(model, work.task, run, settings, prompts)
        records = (
            [] if saved is None else saved.load(examples, settings.batch_size, settings.keep_going)
        )
        if progress is not None and records:
            progress.resume(len(records), len(examples))
        try:
            reason = _answer_rest(answerer, work, examples, records, settings, progress, saved)
        except (ExampleError, KeyboardInterrupt):
            if saved is not None:
                saved.save(records, now=True)
            raise
    return _sum_up(work.task, examples, records) if reason is None else Scores(cannot=reason)


def _answer_rest(
    answerer: _Answerer,
    work: Scoring,
    examples: Sequence[Example],
    records: list[Record],
    settings: GenerationSettings,
    progress: Progress | None,
    saved: PartialScores | None,
) -> str | None:
    """Answer the examples after those of `records`, and add theirs; returns why it cannot."""
    for first in range(len(records), len(examples), settings.batch_size):
        outcomes = answerer.answer(examples[first : first + settings.batch_size])
        if first == 0:
            reason = answerer.get_unsupported_reason(outcomes, examples)
            if reason is not None:
                return reason
        if not settings.keep_going and (reason := _get_missed_budget(outcomes)) is not None:
            return reason
        records += [_keep_or_raise(outcome, work, settings) for outcome in outcomes]
        if saved is not None:
            saved.save(records)
        if progress is not None:
            progress.advance(len(records), len(examples))
    return None


def _get_missed_budget(outcomes: Sequence[Record | ExampleFailure]) -> str | None:
    """Why the budget cannot be met on one of the examples, if there is such a one."""
    for outcome in outcomes:
        if isinstance(outcome, ExampleFailure) and isinstance(outcome.error, BudgetError):
            return f"example {outcome.example.id}: {outcome.error}"
    return None


def _sum_up(task: Task, examples: Sequence[Example], records: Sequence[Record]) -> Scores:
    """Scores of a task without its failed examples."""
    pairs = zip(examples, records, strict=True)
    answered = [(example, record.answer) for example, record in pairs if record.answer is not None]
    total = Total() if task.sum_up is None or not answered else task.sum_up(answered)
    return Scores(tuple(records), overall=total.share, metrics=dict(total.metrics))


def _keep_or_raise(
    outcome: Record | ExampleFailure, work: Scoring, settings: GenerationSettings
) -> Record:
    if isinstance(outcome, Record):
        return outcome
    if not settings.keep_going:
        why = (outcome.record.failed or "").rstrip(".")
        raise ExampleError(
            f"example {outcome.example.id} failed ({work}): {why}. Repair it, or let --keep-going "
            "count it as failed; the same command resumes from here."
        ) from outcome.error
    return outcome.record


def _report_failures(
    unit: Scoring, scores: Scores, progress: Progress, reported: set[tuple[str, str]]
) -> None:
    """Print failures; a method that cannot run on all tasks for one reason, once."""
    name = str(unit.combination)
    if scores.cannot is not None and (name, scores.cannot) not in reported:
        progress.note(f"{name}: cannot: {scores.cannot}")
        reported.add((name, scores.cannot))
    for record in scores.records:
        if record.failed is not None:
            progress.note(f"{unit}: example {record.id} failed: {record.failed}")


class _PromptSelector:
    """Marks the text of a batch that a method reads as the prompt, one text per example."""

    def __init__(self, processor: Any) -> None:
        self._processor = processor
        self.texts: list[str] = []

    def __call__(self, input_ids: Tensor, visual: Tensor) -> Tensor:
        """Return a mask of the same shape as `input_ids`."""
        return mark_text(self._processor, input_ids, self.texts)


class _Answerer:
    """A model, unpruned or with a method running on it, that answers examples of a task."""

    def __init__(
        self,
        model: VisionLanguageModel,
        task: Task,
        run: Run | None,
        settings: GenerationSettings,
        prompts: _PromptSelector | None,
    ) -> None:
        self._model, self._task, self._run, self._settings = model, task, run, settings
        self._prompts = prompts
        self._length = task.max_new_tokens or settings.max_new_tokens

    def answer(self, batch: Sequence[Example]) -> list[Record | ExampleFailure]:
        """Answer a batch; if that fails, each example alone, to isolate the one that fails."""
        try:
            return list(self._make_records(batch, self._model.make_inputs(batch)))
        except Exception as error:
            self._end_all_ranks(error)
            alone = [self._answer_alone(example) for example in batch]
            has_failure = any(isinstance(outcome, ExampleFailure) for outcome in alone)
            if has_failure or self._settings.keep_going:
                return alone
            raise ExampleError(
                f"{self._task.name}: examples {batch[0].id} to {batch[-1].id} failed together, "
                f"though each works alone ({error}). Try a smaller --batch-size than "
                f"{self._settings.batch_size}, or --keep-going to answer these one by one."
            ) from error

    def get_unsupported_reason(
        self, outcomes: Sequence[Record | ExampleFailure], examples: Sequence[Example]
    ) -> str | None:
        """Return why the method rejects a representative subset; None if it does not."""
        if not all(isinstance(each, ExampleFailure) and each.rejected for each in outcomes):
            return None
        rest = examples[len(outcomes) :]
        for example in rest[:: max(1, len(rest) // TRIED)]:
            outcome = self._answer_alone(example)
            if not (isinstance(outcome, ExampleFailure) and outcome.rejected):
                return None
        first = outcomes[0]
        return str(first.error) if isinstance(first, ExampleFailure) else None

    def _answer_alone(self, example: Example) -> Record | ExampleFailure:
        try:
            inputs = self._model.make_inputs([example])
        except Exception as error:
            return ExampleFailure(example, error, rejected=False)
        try:
            return self._make_records([example], inputs)[0]
        except Exception as error:
            self._end_all_ranks(error)
            rejected = self._run is not None and isinstance(error, InputError)
            return ExampleFailure(example, error, rejected)

    def _end_all_ranks(self, error: Exception) -> None:
        """Raise an error that other ranks of tensor parallelism may not have: they would wait."""
        shared = get_tensor_parallel_group(self._model.model) is not None
        if shared and not isinstance(error, InputError):
            raise error

    def _make_records(self, batch: Sequence[Example], inputs: Any) -> list[Record]:
        before = None if self._run is None else self._run.trace
        if self._prompts is not None:
            self._prompts.texts = [example.prompt_words or example.question for example in batch]
        texts = self._model.answer(inputs, max_new_tokens=self._length)
        answers = map(self._task.cut, texts)
        measured = self._measure(inputs, before)
        return [
            Record(
                example.id,
                example.cluster,
                answer,
                self._task.score(answer, example),
                *costs,
                question=example.question,
                answers=example.answers,
            )
            for example, answer, costs in zip(batch, answers, measured, strict=True)
        ]

    def _measure(self, inputs: Any, before: object) -> list[tuple[int, float, float]]:
        """Of each sample: tokens kept, mean per layer, fraction of the unpruned FLOPs."""
        model: Any = self._model.model
        ids = torch.tensor(family_of(model).visual_ids(model.config))
        counts = torch.isin(inputs["input_ids"].cpu(), ids).sum(1).tolist()
        measured = [(int(count), float(count), 1.0) for count in counts]
        # A prompt without images leaves no trace: that of an earlier one is still there then.
        if self._run is not None and self._run.trace is not before:
            for trace in self._run.trace:
                fraction = trace.flops / trace.flops_unpruned
                measured[trace.sample] = len(trace.kept), trace.mean_tokens, fraction
        return measured


# ---- time to the first token ----------------------------------------------------------------


def time_first_tokens(
    model: VisionLanguageModel, work: Timing, settings: GenerationSettings, *, batches: int
) -> Seconds:
    """Time batches of a task, unpruned and pruned interleaved to give both the same load.

    A short task is repeated. If `settings` keep going, any error is a reason why there are no
    times, and not only that the method cannot run.
    """
    examples = list(work.task.examples())
    unpruned, pruned = [], []
    reasons = Exception if settings.keep_going else InputError
    try:
        for number in range(batches):
            batch = _get_batch(examples, number, settings.batch_size)
            # A small prompt first: one-time costs are not the method's.
            warm, timed = model.make_inputs(batch[:1]), model.make_inputs(batch)
            unpruned.append(_time_answers(model, None, warm, timed))
            pruned.append(_time_answers(model, work.combination.method, warm, timed))
    except reasons as error:
        return Seconds(cannot=str(error))
    return Seconds(tuple(unpruned), tuple(pruned))


def _get_batch(examples: Sequence[Example], number: int, size: int) -> Sequence[Example]:
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
        model.answer(timed, max_new_tokens=1)  # ends with text on the CPU, and the GPU is done too
        return time.perf_counter() - begin
