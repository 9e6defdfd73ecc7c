"""Our models, pruned or not, as a model of lmms-eval: ``lmms-eval --model tokencover``."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any

from lmms_eval.api.model import lmms

from tokencover.errors import InputError
from tokencover.evaluation.answering import VisionLanguageModel, load_model
from tokencover.evaluation.lmms.harness import HarnessExample, check_greedy, read_generation
from tokencover.evaluation.lmms.media import (
    PromptWords,
    ShowingSettings,
    extract_question,
    load_medium,
    read_messages,
)
from tokencover.evaluation.plan import Combination, Scoring, make_combinations
from tokencover.evaluation.runner import GenerationSettings, score
from tokencover.evaluation.tasks import Task
from tokencover.methods import parse_methods


class PrunedChatModel(lmms):  # type: ignore[misc]
    """A model of `tokencover.loading.load`, and a method running on it.

    All parameters are keys of lmms-eval's ``--model_args``.

    Parameters
    ----------
    pretrained : str
        A test model ("pebble"), a local path or a Hugging Face Hub ID.
    method : str
        "none", or a method with its settings: ``mob``, ``fastv:after=3``.
    budget : int or float, optional
        Visual tokens to keep, or a fraction of them.
    dtype, device, device_map : str, optional
        As for `tokencover.loading.load`; ``device_map=auto`` is the same as ``device=auto``.
    batch_size : int or str
        Questions answered together.
    max_batch_size : int, optional
        Set by lmms-eval's command, and ignored.
    prompt_words, pad, frames
        See `ShowingSettings`.
    max_new_tokens : int
        Length of an answer, for tasks that do not fix it.
    model : VisionLanguageModel, optional
        A loaded model, instead of `pretrained`.
    """

    is_simple = False

    def __init__(
        self,
        pretrained: str = "pebble",
        method: str = "none",
        budget: float | None = None,
        dtype: str | None = None,
        device: str | None = None,
        device_map: str | None = None,
        batch_size: int | str = 1,
        max_batch_size: int | None = None,
        prompt_words: PromptWords = "question",
        pad: bool = False,
        frames: int = 8,
        max_new_tokens: int = 128,
        model: VisionLanguageModel | None = None,
        **unknown: Any,
    ) -> None:
        super().__init__()
        if unknown:
            raise InputError(
                f"--model tokencover takes no argument {', '.join(sorted(unknown))}; it takes "
                "pretrained, method, budget, dtype, device, device_map, batch_size, prompt_words, "
                "pad, frames, max_new_tokens."
            )
        if not isinstance(pad, bool):
            raise InputError(f"pad is true or false, not {pad!r}.")
        self._showing = ShowingSettings(prompt_words, pad, _read_count("frames", frames))
        self._settings = GenerationSettings(
            _read_count("batch_size", batch_size), _read_count("max_new_tokens", max_new_tokens)
        )
        self._combination = _make_combination(method, budget)
        target = device_map if device in (None, "cuda", "cpu") and device_map else device
        # lmms-eval's command passes "cuda" where every process has its own GPU.
        target = None if target == "cuda" else target
        self._model = model or load_model(pretrained, device=target, dtype=dtype)

    @property
    def device(self) -> Any:
        """The device of the model, for lmms-eval."""
        return self._model.model.device

    def clean(self) -> None:
        """Keep the model, which lmms-eval would delete after each run."""

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """Answer requests in batches; one that fails ends the run and is named."""
        alike: defaultdict[tuple[str, int, tuple[str, ...]], list[int]] = defaultdict(list)
        for index, request in enumerate(requests):
            _, _, generation, _, task, _ = request.args
            check_greedy(task, generation)
            alike[task, *read_generation(generation, self._settings.max_new_tokens)].append(index)
        answers = [""] * len(requests)
        for (name, length, stops), indices in alike.items():
            examples = [self._make_example(requests[index]) for index in indices]
            task = Task(
                name,
                "lmms",
                partial(iter, examples),
                lambda answer, example: 0.0,  # lmms-eval scores
                max_new_tokens=length,
                stops=stops,
            )
            scores = score(self._model, Scoring(self._combination, task), self._settings)
            if scores.cannot is not None:
                raise InputError(f"{self._combination} cannot run on {name}: {scores.cannot}")
            for index, record in zip(indices, scores.records, strict=True):
                answers[index] = record.answer or ""
        return answers

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """Not supported."""
        raise InputError("tokencover does not support tasks that compare likelihoods.")

    def generate_until_multi_round(self, requests: Sequence[Any]) -> list[str]:
        """Not supported."""
        raise InputError("tokencover does not support tasks with several turns.")

    def _make_example(self, request: Any) -> HarnessExample:
        _, write_messages, _, number, task, split = request.args
        where = f"{task}, document {number}"
        document = self.task_dict[task][split][number]
        _, text = read_messages(write_messages(document), where)
        words = None
        if self._showing.prompt_words == "question" and self._combination.method is not None:
            words = extract_question(document, text, where)

        def show() -> list[Any]:
            # Read again: images of all requests would not fit into memory.
            again, _ = read_messages(write_messages(self.task_dict[task][split][number]), where)
            return [load_medium(item, self._showing) for item in again]

        return HarnessExample(f"{number}", (), text, (), f"{number}", (), words, number, show)


def _read_count(name: str, value: Any) -> int:
    """A whole number, which lmms-eval's command may bring as text."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not number.is_integer():
        raise InputError(f"{name} is a whole number, not {value!r}.")
    return int(number)


def _make_combination(method: str, budget: float | None) -> Combination:
    if str(method).lower() in ("none", "unpruned"):
        if budget is not None:
            raise InputError(f"budget={budget} needs a method: give method=mob.")
        return Combination(None)
    if not isinstance(budget, int | float | None):
        raise InputError(f"budget is a number of tokens or a fraction, not {budget!r}.")
    combinations = make_combinations(parse_methods(str(method)), [] if budget is None else [budget])
    if len(combinations) != 2:
        raise InputError(f"method takes one method, for example mob, got {method!r}.")
    return combinations[1]
