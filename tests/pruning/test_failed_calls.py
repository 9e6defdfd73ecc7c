"""A call that fails in its first layer leaves a cache that the next call can use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache

import tokencover as tc
from tests.pruning.random_method import KeepRandom
from tests.pruning.test_caches import failing
from tests.pruning.test_matrix import BUDGET, built
from tests.zoo import ZOO
from tests.zoo.entry import Inputs
from tests.zoo.oracle import decoder_blocks
from tokencover.methods.base import Positions

CASES = [("llava", "original"), ("llava", "reindex"), ("gemma3", "original")]
"""Gemma 3 has sliding windows, whose masks pruning builds itself."""
STEPS = 3


@contextmanager
def prune_case(
    name: str, positions: Positions, stages: tuple[int, ...]
) -> Iterator[tuple[Any, Inputs, Callable[[], Any]]]:
    """A pruned model, a padded batch (a single sample for Gemma 3), and what makes a call fail."""
    entry, model = ZOO[name], built(name)
    inputs = entry.inputs("ragged" if name == "llava" else "single")
    method = KeepRandom(BUDGET, stages, positions=positions)
    attention = decoder_blocks(model)[0].get_submodule("self_attn")
    with torch.no_grad(), tc.prune(model, method, prompt=entry.user_words(inputs)):
        yield model, inputs, partial(failing, attention, RuntimeError)


def decode(model: Any, cache: Any, mask: Tensor, step: int) -> Tensor:
    """Logits after one more token in each row."""
    token = torch.full((len(mask), 1), 33 + step)
    mask = torch.cat([mask, mask.new_ones(len(mask), step + 1)], 1)
    given = {} if len(mask) == 1 else {"attention_mask": mask}
    logits: Tensor = model(input_ids=token, past_key_values=cache, use_cache=True, **given).logits
    return logits


@pytest.mark.parametrize("stages", [(0,), (1,), (0, 2)])
@pytest.mark.parametrize(("name", "positions"), CASES)
def test_cache_after_failed_decoding_step(
    name: str, positions: Positions, stages: tuple[int, ...]
) -> None:
    with prune_case(name, positions, stages) as (model, inputs, fail):
        mask = inputs["attention_mask"]
        expected_cache, cache = DynamicCache(), DynamicCache()
        for each in (expected_cache, cache):
            model(**inputs, past_key_values=each, use_cache=True)
        for step in range(STEPS):
            with pytest.raises(RuntimeError, match="on purpose"), fail():
                decode(model, cache, mask, step)
            found = decode(model, cache, mask, step)
            assert torch.equal(found, decode(model, expected_cache, mask, step))


@pytest.mark.parametrize("stages", [(0,), (1,)])
@pytest.mark.parametrize(("name", "positions"), CASES)
def test_empty_cache_after_failed_prefill(
    name: str, positions: Positions, stages: tuple[int, ...]
) -> None:
    with prune_case(name, positions, stages) as (model, inputs, fail):
        mask = inputs["attention_mask"]
        expected_cache, cache = DynamicCache(), DynamicCache()
        prefill = model(**inputs, past_key_values=expected_cache, use_cache=True).logits
        with pytest.raises(RuntimeError, match="on purpose"), fail():
            model(**inputs, past_key_values=cache, use_cache=True)
        assert torch.equal(model(**inputs, past_key_values=cache, use_cache=True).logits, prefill)
        for step in range(STEPS):
            found = decode(model, cache, mask, step)
            assert torch.equal(found, decode(model, expected_cache, mask, step))
