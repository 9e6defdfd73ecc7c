"""The same prompts to transformers with `tc.prune`, and to vLLM with the plugin."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor

import tokencover as tc
from tokencover.methods import Method

ANSWER_TOKENS = 6
CLOSE = 1e-4
SHOWN = 20
"""Of how many tokens vLLM tells the probability, at each step."""


@dataclass(frozen=True)
class Asked:
    """One prompt: images, and the text in which they stand."""

    pictures: tuple[Image.Image, ...]
    text: str


@dataclass(frozen=True)
class Answered:
    """What came back.

    Attributes
    ----------
    tokens : list of int
        The answer.
    scores : list of dict
        Log-probabilities by token, at each step; vLLM tells the largest, transformers all.
    """

    tokens: list[int]
    scores: list[dict[int, float]]


def answer_in_transformers(
    pair: tuple[Any, Any], method: Method | None, prompts: Sequence[Asked]
) -> tuple[list[Answered], list[list[int]]]:
    """One by one, greedily; also the visual tokens that were kept for each prompt."""
    (model, processor), end = pair, pair[1].tokenizer.eos_token_id
    found: list[Answered] = []
    kept: list[list[int]] = []
    for asked in prompts:
        inputs = processor(text=asked.text, images=list(asked.pictures), return_tensors="pt")
        if method is None:
            out = generate(model, inputs)
            kept.append([])
        else:
            with tc.prune(model, method, processor=processor) as run:
                out = generate(model, inputs)
            kept.append(run.trace[0].kept.tolist())
        tokens = out.sequences[0, inputs["input_ids"].shape[1] :].tolist()
        if end in tokens:  # where vLLM ends, whatever the model's own settings say
            tokens = tokens[: tokens.index(end) + 1]
        steps = [torch.log_softmax(step[0].float(), -1).tolist() for step in out.scores]
        found.append(Answered(tokens, [dict(enumerate(step)) for step in steps]))
    return found, kept


def generate(model: Any, inputs: Any) -> Any:
    with torch.inference_mode():
        return model.generate(
            **inputs,
            max_new_tokens=ANSWER_TOKENS,
            do_sample=False,
            output_scores=True,
            return_dict_in_generate=True,
        )


def answer_in_vllm(
    engine: Any, prompts: Sequence[Asked], settings: dict[str, Any] | None = None
) -> list[Answered]:
    """All at once, greedily."""
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0.0, max_tokens=ANSWER_TOKENS, logprobs=SHOWN)
    requests = []
    for asked in prompts:
        request: dict[str, Any] = {"prompt": asked.text}
        if asked.pictures:
            request["multi_modal_data"] = {"image": list(asked.pictures)}
        if settings is not None:
            request["mm_processor_kwargs"] = {"tokencover": settings}
        requests.append(request)
    outputs = engine.generate(requests, sampling, use_tqdm=False)
    return [read_output(each.outputs[0]) for each in outputs]


def read_output(output: Any) -> Answered:
    steps = [{token: each.logprob for token, each in step.items()} for step in output.logprobs]
    return Answered(list(output.token_ids), steps)


def measure_difference(ours: Answered, theirs: Answered) -> float:
    """The largest difference of log-probabilities, up to the first step at which answers part."""
    largest = 0.0
    for step, (mine, other) in enumerate(zip(ours.scores, theirs.scores, strict=False)):
        known = set(mine) & set(other)
        largest = max(largest, *(abs(mine[each] - other[each]) for each in known))
        if ours.tokens[step] != theirs.tokens[step]:
            break
    return largest


def check_same(found: Sequence[Answered], expected: Sequence[Answered]) -> None:
    """Answers are the same, and probabilities but for rounding."""
    assert [each.tokens for each in found] == [each.tokens for each in expected]
    assert measure_all(found, expected) < CLOSE


def measure_all(found: Sequence[Answered], expected: Sequence[Answered]) -> float:
    """The largest difference of several answers."""
    return max(measure_difference(*each) for each in zip(found, expected, strict=True))


@dataclass(frozen=True)
class Chosen:
    """What was kept of an image with so many tokens."""

    tokens: int
    kept: list[int]


class Choices:
    """Writes down what the engine's model keeps of each image.

    It goes around `select_tokens`, where the model calls it; the engine must be in this process.
    """

    def __init__(self, monkeypatch: Any) -> None:
        serving_model: Any = importlib.import_module("tokencover.serving.model")
        self.made: list[Chosen] = []
        choose = serving_model.select_tokens

        def choose_and_note(method: Any, states: Tensor, words: Tensor, layout: Any) -> Any:
            chosen = choose(method, states, words, layout)
            self.made.append(Chosen(len(layout), chosen.kept.tolist()))
            return chosen

        monkeypatch.setattr(serving_model, "select_tokens", choose_and_note)
