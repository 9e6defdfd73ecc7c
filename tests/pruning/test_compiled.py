"""Models that were compiled before, inside or around the `with` are pruned all the same."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

import tokencover as tc
from tests.pruning.random_method import KeepRandom
from tests.pruning.test_matrix import BUDGET
from tests.zoo import ZOO

ENTRY = ZOO["llava"]


def compiled(target: Any) -> Any:
    return torch.compile(target, backend="eager")


def whole(model: Any) -> Callable[..., Any]:
    return compiled(model)  # type: ignore[no-any-return]


def forward(model: Any) -> Callable[..., Any]:
    model.forward = compiled(model.forward)
    return model  # type: ignore[no-any-return]


def language_model(model: Any) -> Callable[..., Any]:
    model.model.language_model = compiled(model.model.language_model)
    return model  # type: ignore[no-any-return]


def in_place(model: Any) -> Callable[..., Any]:
    model.compile(backend="eager")
    return model  # type: ignore[no-any-return]


def language_model_in_place(model: Any) -> Callable[..., Any]:
    model.model.language_model.compile(backend="eager")
    return model  # type: ignore[no-any-return]


def block_by_block(model: Any) -> Callable[..., Any]:
    for block in model.model.language_model.layers:
        block.compile(backend="eager")
    return model  # type: ignore[no-any-return]


def block_forwards(model: Any) -> Callable[..., Any]:
    for block in model.model.language_model.layers:
        block.forward = compiled(block.forward)
    return model  # type: ignore[no-any-return]


def around(model: Any) -> Callable[..., Any]:
    def call(**inputs: Any) -> Any:
        return model(**inputs)

    return compiled(call)  # type: ignore[no-any-return]


WAYS = [whole, forward, language_model, in_place, language_model_in_place, block_by_block,
        block_forwards, around]  # fmt: skip


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch._dynamo.reset()


def tiny() -> PreTrainedModel:
    return ENTRY.build(layers=2)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_compiled_and_called_before(way: Callable[[Any], Callable[..., Any]]) -> None:
    inputs = ENTRY.inputs("ragged")
    words = ENTRY.user_words(inputs)
    model, other = tiny(), tiny()
    call = way(model)
    with torch.no_grad():
        with tc.prune(other, KeepRandom(BUDGET), prompt=words):
            expected = other(**inputs, use_cache=False).logits
        plain = call(**inputs, use_cache=False).logits
        with tc.prune(model, KeepRandom(BUDGET), prompt=words) as run:
            found = call(**inputs, use_cache=False).logits
        assert [len(trace.kept) for trace in run.trace] == [BUDGET] * len(words)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
        again = call(**inputs, use_cache=False).logits
        torch.testing.assert_close(again, plain, atol=1e-5, rtol=0)


@pytest.mark.parametrize("way", [whole, in_place, block_by_block], ids=lambda way: way.__name__)
def test_compiled_inside(way: Callable[[Any], Callable[..., Any]]) -> None:
    inputs = ENTRY.inputs("ragged")
    words = ENTRY.user_words(inputs)
    model, other = tiny(), tiny()
    with torch.no_grad():
        plain = model(**inputs, use_cache=False).logits
        with tc.prune(other, KeepRandom(BUDGET), prompt=words):
            expected = other(**inputs, use_cache=False).logits
        with tc.prune(model, KeepRandom(BUDGET), prompt=words) as run:
            call = way(model)
            found = [call(**inputs, use_cache=False).logits for _ in range(2)]
            assert len(run.trace) == len(words)
        for each in found:
            torch.testing.assert_close(each, expected, atol=1e-5, rtol=0)
        after = call(**inputs, use_cache=False).logits
        torch.testing.assert_close(after, plain, atol=1e-5, rtol=0)
