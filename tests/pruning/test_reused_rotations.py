"""Passes of a model that reuses one rotary embedding, with and without gradient checkpointing."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

import tokencover as tc
from tests.pruning.random_method import KeepRandom
from tests.pruning.test_matrix import built
from tests.zoo import ZOO


def memoise(model: Any) -> Any:
    """A copy whose rotary embedding returns the same tensors for the same positions."""
    model = copy.deepcopy(model)
    rotary = model.model.language_model.rotary_emb
    original, known = rotary.forward, dict[Any, Any]()

    def forward(states: Tensor, position_ids: Tensor) -> Any:
        key = tuple(position_ids.flatten().tolist())
        if key not in known:
            known[key] = original(states, position_ids)
        return known[key]

    rotary.forward = forward
    return model


def other_image(inputs: dict[str, Any]) -> dict[str, Any]:
    return {**inputs, "pixel_values": -inputs["pixel_values"]}


@pytest.mark.parametrize("method", [KeepRandom(7), tc.FastV(7, after=1), tc.MoB(7)])
def test_a_second_prompt(method: Any) -> None:
    entry = ZOO["llava"]
    inputs = entry.inputs("ragged")
    prompts = [inputs, other_image(inputs), inputs]
    words = entry.user_words(inputs)
    results = []
    for model in (built("llava"), memoise(built("llava"))):
        with torch.no_grad(), tc.prune(model, method, prompt=words) as run:
            logits = [model(**each).logits for each in prompts]
            results.append((logits, [each.kept.tolist() for each in run.trace]))
    for found, expected in zip(results[1][0], results[0][0], strict=True):
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert results[0][1] == results[1][1]


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("memoised", [False, True])
@pytest.mark.parametrize("method", [KeepRandom(7), tc.FastV(7, after=1)])
def test_two_passes_before_one_backward(method: Any, memoised: bool, reentrant: bool) -> None:
    entry = ZOO["llava"]
    inputs = entry.inputs("ragged")
    gradients = []
    for checkpointing in (False, True):
        model = copy.deepcopy(built("llava"))
        model = memoise(model) if memoised else model
        model.train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            model.enable_input_require_grads()
        with tc.prune(model, method, prompt=entry.user_words(inputs)):
            losses = [
                model(**each, labels=each["input_ids"].masked_fill(~words, -100)).loss
                for each in (inputs, other_image(inputs))
                for words in [entry.user_words(each)]
            ]
            (losses[0] + 2 * losses[1]).backward()
        named = model.model.language_model.named_parameters()
        gradients.append({name: each.grad for name, each in named if each.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for name, expected in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], expected, atol=1e-6, rtol=1e-4, msg=name)
