"""One choice for each prompt: text generated without a cache is the same as with one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tokencover as tc
from tests.runtime.test_matrix import NEVER, built, generate
from tests.zoo import ZOO
from tokencover.methods import Method

ENTRY = ZOO["llava"]
OPTIONS: dict[str, Any] = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": NEVER}

READERS: list[Method] = [
    tc.FastV(7, after=1), tc.SparseVLM(7), tc.PyramidDrop(7), tc.DART(7), tc.TokenCarve(7),
    tc.LookAhead(7), tc.MoB(7), tc.FinalWipe(tc.FastV(7, after=1)),
]  # fmt: skip
TOWER: list[Method] = [
    tc.VisionZip(7), tc.FasterVLM(7), tc.HiRED(7), tc.PruMerge(7), tc.SCOPE(7), tc.ToMe(9),
    tc.FiCoCoV(9), tc.MustDrop(7),
]  # fmt: skip


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("method", [*READERS, *TOWER], ids=lambda method: method.name)
def test_the_same_words_without_a_cache(method: Method, beams: int) -> None:
    model = built("llava")
    inputs = ENTRY.inputs("ragged")
    found = []
    for cached in (True, False):
        with tc.prune(model, method, prompt=ENTRY.user_words(inputs)) as run:
            words = generate(model, inputs, **OPTIONS, use_cache=cached, num_beams=beams)
        found.append(words)
        assert len(run.trace) == len(inputs["input_ids"]) * beams
    assert torch.equal(*found)


@pytest.mark.parametrize("method", READERS[:2], ids=lambda method: method.name)
def test_the_next_prompt_is_chosen_for_anew(method: Method) -> None:
    model = built("llava")
    first, second = ENTRY.inputs("ragged"), ENTRY.inputs("two_images")
    with tc.prune(model, method, prompt=ENTRY.user_words(second)):
        expected = generate(model, second, **OPTIONS, use_cache=False)
    mask = ENTRY.user_words(second)
    with tc.prune(model, method, prompt=None if mask is None else mask):
        found = generate(model, second, **OPTIONS, use_cache=False)
        assert torch.equal(found, expected)
        assert torch.equal(generate(model, second, **OPTIONS), expected)
    assert first["input_ids"].shape != second["input_ids"].shape
