"""A token whose logits are used is never dropped."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tokencover as tc
from tests.pruning.prompts_ending_in_pictures import (
    KeepFirst,
    dropped_after_first,
    inputs_ending_in_pictures,
    last_real,
)
from tests.pruning.random_method import KeepRandom
from tests.pruning.test_matrix import DISTINCT, NEVER, built, generate
from tests.zoo import ZOO
from tests.zoo.entry import SIDES, Side, ZooEntry
from tests.zoo.oracle import blocked_forward, recompute_greedy

FEW = [pytest.param(ZOO[name], id=name) for name in ("llava", "llava_next", "qwen2_vl", "qwen3_vl")]


@pytest.mark.parametrize("stage", [0, 1, 4])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("entry", DISTINCT)
def test_the_last_token_of_a_row_survives(entry: ZooEntry, side: Side, stage: int) -> None:
    model = built(entry.name)
    inputs = inputs_ending_in_pictures(entry, "ragged", side)
    visual, last = entry.visual(inputs), last_real(inputs)
    assert bool((visual & last).any(-1).all())
    gone = dropped_after_first(visual, 3) & ~last
    with torch.no_grad(), tc.prune(model, KeepFirst(3, stage), prompt=~visual) as run:
        found = model(**inputs, use_cache=False).logits
    expected = blocked_forward(model, inputs, gone, stage)
    torch.testing.assert_close(found[last], expected[last], atol=1e-5, rtol=0)
    for trace in run.trace:
        assert trace.kept.tolist() == [0, 1, 2, int(visual[trace.sample].sum()) - 1]


# The Qwens number the word after an image otherwise in `generate` than in one long pass.
@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("entry", [ZOO["llava"], ZOO["llava_next"], ZOO["internvl"]])
def test_generation_goes_on_from_a_picture(entry: ZooEntry, stage: int) -> None:
    model = built(entry.name)
    inputs = inputs_ending_in_pictures(entry, "ragged")
    visual = entry.visual(inputs)
    gone = dropped_after_first(visual, 3) & ~last_real(inputs)
    options: dict[str, Any] = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": NEVER}
    with tc.prune(model, KeepFirst(3, stage), prompt=~visual):
        found = generate(model, inputs, **options)
    words = found[:, inputs["input_ids"].shape[1] :]
    assert torch.equal(words, recompute_greedy(model, inputs, 5, gone, stage))


@pytest.mark.parametrize("stages", [(1,), (0, 2)])
@pytest.mark.parametrize("entry", [ZOO["llava"], ZOO["internvl"]], ids=lambda entry: entry.name)
def test_what_stayed_of_a_prompt_stays_without_a_cache(
    entry: ZooEntry, stages: tuple[int, ...]
) -> None:
    """Words follow the last token of the image; a cache would still have it.

    (Gemma 3 differs here without pruning, too: it takes such words for pieces of the image.)
    """
    model, method = built(entry.name), KeepRandom(3, stages)
    inputs = inputs_ending_in_pictures(entry, "ragged")
    options: dict[str, Any] = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": NEVER}
    with tc.prune(model, method, prompt=~entry.visual(inputs)):
        cached = generate(model, inputs, **options)
        assert torch.equal(generate(model, inputs, **options, use_cache=False), cached)


def test_a_model_that_is_its_own_base_is_pruned_by_forward_too() -> None:
    """Llama 4's forward does what another module does elsewhere, and may be called directly."""
    entry, model = ZOO["llama4"], built("llama4")
    inputs = entry.inputs("ragged")
    with torch.no_grad(), tc.prune(model, KeepFirst(3), prompt=entry.user_words(inputs)) as run:
        expected = model(**inputs).logits
        run.trace.clear()
        assert torch.equal(model.forward(**inputs).logits, expected)
        assert len(run.trace) == len(inputs["input_ids"])


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("entry", [*FEW, pytest.param(ZOO["llama4"], id="llama4")])
def test_the_word_after_a_picture_is_scored_from_the_picture(entry: ZooEntry, side: Side) -> None:
    model = built(entry.name)
    inputs = entry.inputs("ragged", side)
    visual = entry.visual(inputs)
    real = inputs["attention_mask"].bool()
    first = real & (real.cumsum(-1) == 1)  # what comes before it is padding, which predicts nothing
    labels = inputs["input_ids"].masked_fill(visual | ~real | first, -100)
    used = torch.zeros_like(visual)
    used[:, :-1] = visual[:, :-1] & (labels[:, 1:] != -100)
    assert bool(used.any(-1).all())
    gone = dropped_after_first(visual, 3) & ~used
    with torch.no_grad(), tc.prune(model, KeepFirst(3), prompt=entry.user_words(inputs)):
        loss = model(**inputs, labels=labels).loss
    logits = blocked_forward(model, inputs, gone, 1)[:, :-1]
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=0)


def test_with_labels_on_every_token_the_loss_is_that_of_the_unpruned_model() -> None:
    entry, model = ZOO["llava"], built("llava")
    inputs = entry.inputs("single")
    labels = inputs["input_ids"].clone()
    with torch.no_grad():
        expected = model(**inputs, labels=labels).loss
        with tc.prune(model, KeepFirst(3), prompt=entry.user_words(inputs)) as run:
            found = model(**inputs, labels=labels).loss
            assert len(run.trace[0].kept) == run.trace[0].visual_tokens
            model(**inputs)
            assert len(run.trace[0].kept) == 3
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
