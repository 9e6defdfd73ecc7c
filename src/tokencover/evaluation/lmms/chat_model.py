"""Our models, pruned or not, as a chat model of lmms-eval: ``lmms-eval --model tokencover``."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any

from lmms_eval.api.model import lmms

from tokencover.errors import InputError
from tokencover.evaluation.answering import VisionLanguageModel, load_model
from tokencover.evaluation.lmms.harness_tasks import HarnessExample, check_greedy
from tokencover.evaluation.lmms.shown_media import (
    PromptWords,
    ShowingSettings,
    find_question,
    load_medium,
    read_messages,
)
from tokencover.evaluation.plan import Combination, Scoring, make_combinations
from tokencover.evaluation.runner import AskingSettings, score
from tokencover.evaluation.tasks import Task
from tokencover.methods import parse_methods


class PrunedChatModel(lmms):  # type: ignore[misc]
    """A model of `tokencover.loading.load`, and a method at work on it.

    Everything is a key of lmms-eval's ``--model_args``; a key that is not here is refused.

    Parameters
    ----------
    pretrained : str
        "pebble", "pebble-clips", "boulder", a folder or a hub name.
    method : str
        "none", or a method with its settings: ``mob``, ``fastv:after=3``.
    budget : int or float, optional
        Visual tokens to keep, or a share of them.
    dtype, device, device_map : str, optional
        As for `tokencover.loading.load`; ``device_map=auto`` is the same as ``device=auto``.
    batch_size : int or str
        Questions answered together.
    max_batch_size : int, optional
        Comes with lmms-eval's command, and says nothing here.
    prompt_words, pad, frames
        See `ShowingSettings`.
    max_new_tokens : int
        Length of an answer, for tasks that do not fix it.
    model : VisionLanguageModel, optional
        One that is loaded already, in the place of `pretrained`.
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
        self._asking = AskingSettings(
            _read_count("batch_size", batch_size), _read_count("max_new_tokens", max_new_tokens)
        )
        self._combination = _make_combination(method, budget)
        place = device_map if device in (None, "cuda", "cpu") and device_map else device
        # lmms-eval's command says "cuda" where each process has a GPU of its own.
        place = None if place == "cuda" else place
        self._answering = model or load_model(pretrained, device=place, dtype=dtype)

    @property
    def device(self) -> Any:
        """Where the model is, which lmms-eval asks."""
        return self._answering.model.device

    def clean(self) -> None:
        """Keep the model, which lmms-eval would delete after each run."""

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        """Answer requests, batch by batch; one that fails ends the run, with its document."""
        alike: defaultdict[tuple[str, int, tuple[str, ...]], list[int]] = defaultdict(list)
        for place, request in enumerate(requests):
            _, _, generation, _, task, _ = request.args
            check_greedy(task, generation)
            length = int(generation.get("max_new_tokens") or self._asking.max_new_tokens)
            until = generation.get("until") or ()
            stops = (until,) if isinstance(until, str) else tuple(until)
            alike[task, length, stops].append(place)
        answers = [""] * len(requests)
        for (name, length, stops), places in alike.items():
            examples = [self._make_example(requests[place]) for place in places]
            task = Task(
                name,
                "lmms",
                partial(iter, examples),
                lambda answer, example: 0.0,  # lmms-eval scores
                max_new_tokens=length,
                stops=stops,
            )
            scores = score(self._answering, Scoring(self._combination, task), self._asking)
            if scores.cannot is not None:
                raise InputError(f"{self._combination} cannot run on {name}: {scores.cannot}")
            for place, record in zip(places, scores.records, strict=True):
                answers[place] = record.answer or ""
        return answers

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        """Refused: pruned models answer here."""
        raise InputError("tokencover answers questions, and this task wants likelihoods.")

    def generate_until_multi_round(self, requests: Sequence[Any]) -> list[str]:
        """Refused: one turn is asked."""
        raise InputError("tokencover answers one turn, and this task has several.")

    def _make_example(self, request: Any) -> HarnessExample:
        _, write_messages, _, number, task, split = request.args
        where = f"{task}, document {number}"
        document = self.task_dict[task][split][number]
        items, text = read_messages(write_messages(document), where)
        words = None
        if self._showing.prompt_words == "question" and self._combination.method is not None:
            words = find_question(document, text, where)

        def show() -> list[Any]:
            # Once more: pictures of all requests at a time would not fit into memory.
            again, _ = read_messages(write_messages(self.task_dict[task][split][number]), where)
            return [load_medium(item, self._showing) for item in again]

        del items
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
            raise InputError(f"budget={budget} says nothing without a method: give method=mob.")
        return Combination(None)
    if not isinstance(budget, int | float | None):
        raise InputError(f"budget is a number of tokens or a share, not {budget!r}.")
    found = make_combinations(parse_methods(str(method)), [] if budget is None else [budget])
    if len(found) != 2:
        raise InputError(f"method takes one method, for example mob, got {method!r}.")
    return found[1]
