"""Puts a task's questions to a model, pruned or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from tokencover.errors import InputError, TokenCoverError
from tokencover.evaluation.loading import VisionLanguageModel
from tokencover.evaluation.plan import Scoring
from tokencover.evaluation.results import Record, Scores
from tokencover.evaluation.task import Example, Task
from tokencover.runtime import Run, family_of, prune

TRIED = 8
"""How many examples of a task, besides those of its first batch, must be refused by a method
before the method counts as one that cannot run."""


class ExampleError(TokenCoverError):
    """A model could not answer an example."""


@dataclass(frozen=True)
class Settings:
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
        return Record(self.example.id, self.example.cluster, failed=text)


def score(
    model: VisionLanguageModel,
    work: Scoring,
    settings: Settings,
    advance: Callable[[int, int], None] = lambda answered, examples: None,
) -> Scores:
    """Answer all questions of a task.

    Parameters
    ----------
    model : VisionLanguageModel
        Not pruned yet.
    work : Scoring
        Task and method.
    settings : Settings
        How to ask.
    advance : callable
        Is told how many examples are answered, and how many there are.

    Returns
    -------
    Scores
        A record for each example; or, if the method refuses to run on this model or at this
        budget, the reason.

    Raises
    ------
    ExampleError
        If an example fails and `settings` do not say to keep going; it names the example.
    """
    examples = list(work.task.examples())
    with ExitStack() as stack:
        method, run = work.combination.method, None
        if method is not None:
            try:
                run = stack.enter_context(prune(model.model, method, processor=model.processor))
            except InputError as error:
                return Scores(cannot=str(error))
        asking = _Asking(model, work.task, run, settings)
        records: list[Record] = []
        for first in range(0, len(examples), settings.batch_size):
            batch = examples[first : first + settings.batch_size]
            outcomes = asking.outcomes(batch)
            if first == 0 and (reason := asking.refusal(outcomes, examples)) is not None:
                return Scores(cannot=reason)
            records += [_record(each, work, settings) for each in outcomes]
            advance(first + len(batch), len(examples))
    return Scores(tuple(records))


def _record(outcome: Record | Trouble, work: Scoring, settings: Settings) -> Record:
    if isinstance(outcome, Record):
        return outcome
    if not settings.keep_going:
        raise ExampleError(
            f"example {outcome.example.id} failed ({work}): {outcome.record.failed}. Mend it, or "
            "let --keep-going count it as failed; the same command goes on from here."
        ) from outcome.error
    return outcome.record


class _Asking:
    """A model, as it is or with a method at work on it."""

    def __init__(
        self, model: VisionLanguageModel, task: Task, run: Run | None, settings: Settings
    ) -> None:
        self._model, self._task, self._run, self._settings = model, task, run, settings

    def outcomes(self, batch: Sequence[Example]) -> list[Record | Trouble]:
        """Answer a batch; if that fails, each example alone, to see whose fault it is."""
        try:
            return list(self._records(batch, self._model.inputs(batch)))
        except Exception as error:
            alone = [self._alone(example) for example in batch]
            if any(isinstance(each, Trouble) for each in alone) or self._settings.keep_going:
                return alone
            raise ExampleError(
                f"{self._task.name}: examples {batch[0].id} to {batch[-1].id} failed together, "
                f"though each works alone ({error}). Try a smaller --batch-size than "
                f"{self._settings.batch_size}, or --keep-going to ask these one by one."
            ) from error

    def refusal(
        self, outcomes: Sequence[Record | Trouble], examples: Sequence[Example]
    ) -> str | None:
        """Why the method refuses every example, as far as we tried; None if it does not."""
        if not all(isinstance(each, Trouble) and each.refused for each in outcomes):
            return None
        rest = examples[len(outcomes) :]
        for example in rest[:: max(1, len(rest) // TRIED)]:
            outcome = self._alone(example)
            if not (isinstance(outcome, Trouble) and outcome.refused):
                return None
        first = outcomes[0]
        return str(first.error) if isinstance(first, Trouble) else None

    def _alone(self, example: Example) -> Record | Trouble:
        try:
            inputs = self._model.inputs([example])
        except Exception as error:
            return Trouble(example, error, refused=False)
        try:
            return self._records([example], inputs)[0]
        except Exception as error:
            refused = self._run is not None and isinstance(error, InputError)
            return Trouble(example, error, refused)

    def _records(self, batch: Sequence[Example], inputs: Any) -> list[Record]:
        before = None if self._run is None else self._run.trace
        answers = self._model.answers(inputs, max_new_tokens=self._settings.max_new_tokens)
        measured = self._measured(inputs, before)
        return [
            Record(example.id, example.cluster, answer, self._task.score(answer, example), *each)
            for example, answer, each in zip(batch, answers, measured, strict=True)
        ]

    def _measured(self, inputs: Any, before: object) -> list[tuple[int, float, float]]:
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
