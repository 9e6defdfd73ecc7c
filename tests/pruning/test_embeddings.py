"""Models that are handed embeddings instead of token ids."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tokencover as tc
from tests.pruning.random_method import KeepRandom, dropped_by
from tests.pruning.test_matrix import BUDGET, NEVER, built, generate, left_over
from tests.zoo import ZOO
from tests.zoo.entry import Inputs
from tests.zoo.oracle import blocked_forward, recompute_greedy

ENTRY = ZOO["llava"]


def embedded(model: Any, inputs: Inputs) -> dict[str, Any]:
    """The same batch as embeddings, images in their places."""
    with torch.no_grad():
        embeds = model.get_input_embeddings()(inputs["input_ids"])
        features = model.get_image_features(pixel_values=inputs["pixel_values"])
        features = torch.cat(list(getattr(features, "pooler_output", features)))
    embeds[ENTRY.visual(inputs)] = features.flatten(0, -2).to(embeds)
    return {"inputs_embeds": embeds, "attention_mask": inputs["attention_mask"]}


@pytest.mark.parametrize("stage", [0, 1])
def test_a_mask_says_what_is_visual(stage: int) -> None:
    model, method = built("llava"), KeepRandom(BUDGET, (stage,))
    inputs = ENTRY.inputs("ragged")
    visual, words = ENTRY.visual(inputs), ENTRY.user_words(inputs)
    gone = dropped_by(method, inputs, visual)
    with torch.no_grad(), tc.prune(model, method, prompt=words, visual=visual) as run:
        found = model(**embedded(model, inputs), use_cache=False).logits
    expected = blocked_forward(model, inputs, gone[stage], stage)
    left = left_over(inputs, gone)
    torch.testing.assert_close(found[left], expected[left], atol=1e-5, rtol=0)
    assert [len(trace.kept) for trace in run.trace] == [BUDGET] * len(visual)


def test_generation_from_embeddings() -> None:
    model, method = built("llava"), KeepRandom(BUDGET)
    inputs = ENTRY.inputs("ragged")
    visual, words = ENTRY.visual(inputs), ENTRY.user_words(inputs)
    gone = dropped_by(method, inputs, visual)[1]
    options: dict[str, Any] = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": NEVER}
    with tc.prune(model, method, prompt=words, visual=visual):
        found = generate(model, embedded(model, inputs), **options)
    assert torch.equal(found, recompute_greedy(model, inputs, 5, gone, 1))


def test_mob_on_embeddings_chooses_as_on_ids() -> None:
    model, method = built("llava"), tc.MoB(BUDGET)
    inputs = ENTRY.inputs("ragged")
    visual, words = ENTRY.visual(inputs), ENTRY.user_words(inputs)
    with torch.no_grad():
        with tc.prune(model, method, prompt=words) as by_ids:
            expected = model(**inputs, use_cache=False).logits
        with tc.prune(model, method, prompt=words, visual=visual) as by_mask:
            found = model(**embedded(model, inputs), use_cache=False).logits
    assert [each.kept.tolist() for each in by_mask.trace] == [
        each.kept.tolist() for each in by_ids.trace
    ]
    torch.testing.assert_close(found[:, -1], expected[:, -1], atol=1e-5, rtol=0)


def test_without_a_mask_the_way_out_is_named() -> None:
    model = built("llava")
    inputs = ENTRY.inputs("single")
    run = tc.prune(model, KeepRandom(BUDGET), prompt=ENTRY.user_words(inputs))
    with run, pytest.raises(tc.InputError, match="visual="):
        model(**embedded(model, inputs))


def test_a_mask_of_another_shape_is_refused() -> None:
    model = built("llava")
    inputs = ENTRY.inputs("single")
    visual = torch.cat([ENTRY.visual(inputs)] * 2, 1)
    run = tc.prune(model, KeepRandom(BUDGET), prompt=ENTRY.user_words(inputs), visual=visual)
    with run, pytest.raises(tc.InputError, match="visual= is a mask of shape"):
        model(**embedded(model, inputs))
