"""All the ways in which people run a model."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from accelerate import cpu_offload
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel, StaticCache

from tests.pruning.random_method import KeepRandom, dropped_by
from tests.pruning.test_matrix import BUDGET, DISTINCT, NEVER, built, generate
from tests.zoo import ZOO
from tests.zoo.entry import Inputs, ZooEntry
from tests.zoo.oracle import blocked_forward, recompute_decode, recompute_greedy
from tokencover.pruning.prune import prune

FEW = [pytest.param(ZOO[name], id=name) for name in ("llava", "llava_next", "qwen2_vl", "qwen3_vl")]
STAGES = [(0,), (1,), (1, 3)]
GREEDY: dict[str, Any] = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": NEVER}


def generated(
    model: PreTrainedModel, inputs: Inputs, method: KeepRandom, prompt: Tensor, **options: Any
) -> Tensor:
    with prune(model, method, prompt=prompt):
        found: Tensor = generate(model, inputs, **{**GREEDY, **options})
    return found[:, inputs["input_ids"].shape[1] :]


def alone(entry: ZooEntry, kind: str) -> list[Inputs]:
    return [entry.collate([sample]) for sample in entry.samples(kind)]


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("entry", DISTINCT)
def test_beam_search_of_a_batch_equals_the_single_runs(
    entry: ZooEntry, stages: tuple[int, ...]
) -> None:
    model, method = built(entry.name), KeepRandom(BUDGET, stages)
    batch = entry.inputs("two_images")
    together = generated(model, batch, method, entry.user_words(batch), num_beams=3)
    for row, single in enumerate(alone(entry, "two_images")):
        found = generated(model, single, method, entry.user_words(single), num_beams=3)
        assert torch.equal(together[row], found[0])


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("entry", FEW)
@pytest.mark.parametrize(
    "options",
    [{"use_cache": False}, {"cache_implementation": "static", "disable_compile": True}],
    ids=["no cache", "static cache"],
)
def test_other_caches_give_the_same_text(
    entry: ZooEntry, stages: tuple[int, ...], options: dict[str, Any]
) -> None:
    model, method = built(entry.name), KeepRandom(BUDGET, stages)
    inputs = entry.inputs("ragged")
    words = entry.user_words(inputs)
    assert torch.equal(
        generated(model, inputs, method, words, **options), generated(model, inputs, method, words)
    )


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("entry", FEW)
@pytest.mark.parametrize("way", ["prompt lookup", "assistant"])
def test_speculative_decoding_gives_the_same_text(
    entry: ZooEntry, stages: tuple[int, ...], way: str
) -> None:
    model, method = built(entry.name), KeepRandom(BUDGET, stages)
    inputs = entry.inputs("single")
    words = entry.user_words(inputs)
    options: dict[str, Any] = {"prompt_lookup_num_tokens": 3}
    if way == "assistant":
        options = {"assistant_model": entry.build(layers=2)}
    plain = generated(model, inputs, method, words, max_new_tokens=10)
    assert torch.equal(generated(model, inputs, method, words, max_new_tokens=10, **options), plain)


@pytest.mark.parametrize("entry", FEW)
def test_sampling_is_repeatable(entry: ZooEntry) -> None:
    model, method = built(entry.name), KeepRandom(BUDGET)
    inputs = entry.inputs("ragged")
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        words = entry.user_words(inputs)
        found.append(generated(model, inputs, method, words, do_sample=True, temperature=2.0))
    assert torch.equal(*found)
    assert len(found[0].unique()) > 3


@pytest.mark.parametrize("stages", STAGES[:2])
@pytest.mark.parametrize("entry", DISTINCT)
def test_a_chat_goes_on_over_a_kept_cache(entry: ZooEntry, stages: tuple[int, ...]) -> None:
    model, method = built(entry.name), KeepRandom(BUDGET, stages)
    inputs = entry.inputs("single")
    dropped = dropped_by(method, inputs, entry.visual(inputs))[stages[0]]
    question = torch.tensor([[30, 41, 52]])
    with prune(model, method, prompt=entry.user_words(inputs)):
        first = generate(
            model, inputs, **GREEDY, past_key_values=DynamicCache(), return_dict_in_generate=True
        )
        longer = torch.cat([first.sequences, question], 1)
        text = {"input_ids": longer, "attention_mask": torch.ones_like(longer)}
        if "mm_token_type_ids" in inputs:
            kinds = torch.zeros_like(longer, dtype=inputs["mm_token_type_ids"].dtype)
            kinds[:, : inputs["input_ids"].shape[1]] = inputs["mm_token_type_ids"]
            text["mm_token_type_ids"] = kinds
        second = generate(
            model,
            text,
            **GREEDY,
            past_key_values=first.past_key_values,
            return_dict_in_generate=True,
            output_logits=True,
        )
    start = inputs["input_ids"].shape[1]
    answer = second.sequences[:, longer.shape[1] :]
    continuation = torch.cat([longer[:, start:], answer[:, :-1]], 1)
    expected = recompute_decode(model, inputs, continuation, dropped, stages[0])
    steps = torch.stack(second.logits, 1)
    torch.testing.assert_close(steps, expected[:, -steps.shape[1] :], atol=2e-5, rtol=0)


@pytest.mark.parametrize("stages", STAGES[:2])
@pytest.mark.parametrize("entry", FEW)
def test_a_hand_written_loop_without_positions(entry: ZooEntry, stages: tuple[int, ...]) -> None:
    model, method = built(entry.name), KeepRandom(BUDGET, stages)
    inputs = entry.inputs("single")
    dropped = dropped_by(method, inputs, entry.visual(inputs))[stages[0]]
    tokens = torch.tensor([[33, 44, 55]])
    steps = []
    with torch.no_grad(), prune(model, method, prompt=entry.user_words(inputs)):
        out = model(**inputs, use_cache=True)
        for place in range(3):
            steps.append(out.logits[:, -1])
            cache = out.past_key_values
            out = model(input_ids=tokens[:, place : place + 1], past_key_values=cache)
        steps.append(out.logits[:, -1])
    expected = recompute_decode(model, inputs, tokens, dropped, stages[0])
    torch.testing.assert_close(torch.stack(steps, 1), expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("entry", FEW)
def test_labels_give_the_loss_of_what_is_left(entry: ZooEntry, side: Any) -> None:
    model, method = built(entry.name), KeepRandom(BUDGET)
    inputs = entry.inputs("ragged", side)
    words = entry.user_words(inputs)
    labels = inputs["input_ids"].masked_fill(~words, -100)
    dropped = dropped_by(method, inputs, entry.visual(inputs))[1]
    with torch.no_grad(), prune(model, method, prompt=words):
        loss = model(**inputs, labels=labels).loss
    logits = blocked_forward(model, inputs, dropped, 1)[:, :-1]
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=0)


def gradients(model: PreTrainedModel, inputs: Inputs, prompt: Tensor) -> dict[str, Tensor]:
    labels = inputs["input_ids"].masked_fill(~prompt, -100)
    model.zero_grad()
    with prune(model, KeepRandom(BUDGET, (1, 3)), prompt=prompt):
        loss = model(**inputs, labels=labels).loss
        other = model(**inputs, labels=labels).loss  # another pass before backward
        (loss + other).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("entry", FEW)
def test_gradient_checkpointing_gives_the_same_gradients(entry: ZooEntry) -> None:
    model = entry.build()
    inputs = entry.inputs("ragged")
    prompt = entry.user_words(inputs)
    model.train()
    plain = gradients(model, inputs, prompt)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    checkpointed = gradients(model, inputs, prompt)
    assert len(plain) > 50
    assert any(value.abs().sum() > 0 for name, value in plain.items() if "vis" in name)
    for name, value in plain.items():
        torch.testing.assert_close(checkpointed[name], value, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("entry", FEW)
def test_merged_states_reach_the_blocks(entry: ZooEntry) -> None:
    model = built(entry.name)
    inputs = entry.inputs("ragged")
    words = entry.user_words(inputs)
    found = []
    with torch.no_grad():
        for merges in (False, True):
            with prune(model, KeepRandom(BUDGET, merges=merges), prompt=words):
                found.append(model(**inputs).logits[:, -1])
    assert (found[0] - found[1]).abs().min(-1).values.max() > 1e-4


def test_merged_states_count_even_if_nothing_is_dropped() -> None:
    entry, model = ZOO["llava"], built("llava")
    inputs = entry.inputs("single")
    with torch.no_grad():
        plain = model(**inputs).logits
        with prune(model, KeepRandom(None, merges=True), prompt=entry.user_words(inputs)):
            assert (model(**inputs).logits - plain).abs().max() > 1e-3


@pytest.mark.parametrize("entry", FEW)
def test_half_precision(entry: ZooEntry) -> None:
    model = entry.build(dtype=torch.bfloat16)
    method = KeepRandom(BUDGET)
    inputs = entry.inputs("ragged")
    halves = {
        name: value.bfloat16() if value.is_floating_point() else value
        for name, value in inputs.items()
    }
    dropped = dropped_by(method, inputs, entry.visual(inputs))[1]
    with torch.no_grad(), prune(model, method, prompt=entry.user_words(inputs)):
        found = model(**halves).logits
    assert found.dtype == torch.bfloat16
    expected = blocked_forward(model, halves, dropped, 1)
    torch.testing.assert_close(found[:, -1], expected[:, -1], atol=0.15, rtol=0.05)


@pytest.mark.parametrize("entry", FEW)
def test_a_static_cache_made_by_hand(entry: ZooEntry) -> None:
    model, method = built(entry.name), KeepRandom(BUDGET, (1, 3))
    inputs = entry.inputs("single")
    cache = StaticCache(model.config.get_text_config(), max_cache_len=128)
    words = entry.user_words(inputs)
    options = {"past_key_values": cache, "disable_compile": True}
    found = generated(model, inputs, method, words, **options)
    assert torch.equal(found, generated(model, inputs, method, words))
    cache.reset()
    assert torch.equal(generated(model, inputs, method, words, **options), found)


def test_several_threads_with_several_models() -> None:
    entries = [ZOO[name] for name in ("llava", "qwen2_vl", "qwen3_vl")]
    models = [entry.build() for entry in entries]
    wrong: list[str] = []

    def work(entry: ZooEntry, model: PreTrainedModel) -> None:
        method = KeepRandom(BUDGET)
        for _ in range(3):
            inputs = entry.inputs("ragged")
            dropped = dropped_by(method, inputs, entry.visual(inputs))[1]
            found = generated(model, inputs, method, entry.user_words(inputs), max_new_tokens=3)
            if not torch.equal(found, recompute_greedy(model, inputs, 3, dropped, 1)):
                wrong.append(entry.name)

    threads = [
        threading.Thread(target=work, args=pair) for pair in zip(entries, models, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_layers_on_several_devices() -> None:
    """Weights of some blocks live elsewhere and are fetched when the block runs."""
    entry = ZOO["llava"]
    model = entry.build()
    inputs = entry.inputs("ragged")
    method = KeepRandom(BUDGET, (1, 3))
    words = entry.user_words(inputs)
    plain = generated(model, inputs, method, words)
    cpu_offload(model, execution_device=torch.device("cpu"))
    assert any(p.device.type == "meta" for p in model.parameters())
    assert torch.equal(generated(model, inputs, method, words), plain)
