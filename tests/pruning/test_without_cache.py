"""One choice for each prompt: text generated without a cache is the same as with one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tokencover as tc
from tests.pruning.test_matrix import NEVER, built, generate
from tests.zoo import ZOO
from tests.zoo.vocabulary import FIRST_WORD
from tokencover.errors import InputError
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


def loop(model: Any, inputs: Any, steps: int, cached: bool) -> torch.Tensor:
    """Tokens of a custom loop, with a cache or all of the text repeatedly."""
    inputs, cache, found = dict(inputs), None, []
    for _ in range(steps):
        if cache is None:
            out = model(**inputs, use_cache=cached)
        else:
            given = {"input_ids": found[-1], "attention_mask": inputs["attention_mask"]}
            out = model(**given, past_key_values=cache)
        cache = out.past_key_values if cached else None
        word = out.logits[:, -1:, FIRST_WORD:].argmax(-1) + FIRST_WORD  # no image token
        found.append(word)
        inputs["input_ids"] = torch.cat([inputs["input_ids"], word], 1)
        mask = inputs["attention_mask"]
        inputs["attention_mask"] = torch.cat([mask, torch.ones_like(word)], 1)
    return torch.cat(found, 1)


@pytest.mark.parametrize(
    "method", [*READERS[:3], TOWER[0], tc.ToMe(9)], ids=lambda method: method.name
)
def test_a_loop_that_is_held_chooses_once(method: Method) -> None:
    model, inputs = built("llava"), ENTRY.inputs("ragged")
    with torch.no_grad(), tc.prune(model, method, prompt=ENTRY.user_words(inputs)) as run:
        expected = loop(model, inputs, 5, cached=True)
        with run.hold():
            assert torch.equal(loop(model, inputs, 5, cached=False), expected)


def test_without_hold_each_text_is_a_prompt_of_its_own() -> None:
    model, inputs, method = built("llava"), ENTRY.inputs("ragged"), tc.FastV(7, after=1)
    with torch.no_grad(), tc.prune(model, method, prompt=ENTRY.user_words(inputs)):
        anew = loop(model, inputs, 5, cached=False)
        assert not torch.equal(anew, loop(model, inputs, 5, cached=True))


@pytest.mark.parametrize("change", ["words", "picture"])
def test_another_prompt_is_not_mistaken_for_the_one_that_is_held(change: str) -> None:
    model, inputs = built("llava"), ENTRY.inputs("ragged")
    other = dict(inputs)
    if change == "words":
        other["input_ids"] = inputs["input_ids"].clone()
        other["input_ids"][:, -2] += 1
    else:
        other["pixel_values"] = inputs["pixel_values"] + 0.1
    with torch.no_grad(), tc.prune(model, tc.MoB(7), prompt=ENTRY.user_words(inputs)) as run:
        with run.hold():
            model(**inputs, use_cache=False)
            model(**{name: each.clone() for name, each in inputs.items()}, use_cache=False)
            with pytest.raises(InputError, match="made for another prompt"):
                model(**other, use_cache=False)
            generate(model, other, **OPTIONS)  # chooses for itself
        model(**other, use_cache=False)


@pytest.mark.parametrize("name", [name for name in ("qwen2_vl", "cosmos3_edge") if name in ZOO])
def test_positions_of_a_picture_are_not_taken_for_packed_documents(name: str) -> None:
    """Cosmos 3 Edge without pruning takes them so, if it is given neither a mask nor a cache."""
    entry, model = ZOO[name], built(name)
    inputs = entry.inputs("single")
    bare = {name: value for name, value in inputs.items() if name != "attention_mask"}
    with torch.no_grad(), tc.prune(model, tc.FastV(4, after=2), prompt=entry.user_words(inputs)):
        expected = model(**inputs, use_cache=False).logits
        torch.testing.assert_close(model(**bare, use_cache=False).logits, expected)
        found = [generate(model, inputs, **OPTIONS, use_cache=each) for each in (True, False)]
    assert torch.equal(*found)
