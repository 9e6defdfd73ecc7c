"""Pruning under flash attention: transformers' own path, with reference kernels, against sdpa."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import DynamicCache, PreTrainedModel, StaticCache

from tests.pruning.flash_reference import FlashReference, install, with_flash
from tests.pruning.random_method import KeepRandom, dropped_by
from tests.pruning.test_matrix import BUDGET, NEVER, built, generate, left_over, logits
from tests.zoo import ZOO
from tests.zoo.entry import SIDES, Inputs, Side, ZooEntry
from tokencover.errors import InputError
from tokencover.families import family_of
from tokencover.methods import FastV, Method, MoB, get_method
from tokencover.methods.base import Positions
from tokencover.pruning.prune import prune

FEW = ["llava", "llava_next", "qwen2_vl", "qwen3_vl", "internvl"]
STAGES = [(0,), (1,), (1, 3)]
KINDS: dict[Side, tuple[str, ...]] = {"left": ("single", "ragged"), "right": ("ragged", "mixed")}
ALL = [pytest.param(entry, id=name) for name, entry in ZOO.items() if entry.flash]
PRUNED = [
    pytest.param(entry, stages, id=f"{name}-{stages}")
    for name, entry in ZOO.items()
    for stages in STAGES
    if entry.flash and entry.alike is None and (name in FEW or stages == (1, 3))
]
GREEDY: dict[str, Any] = {
    "max_new_tokens": 3, "do_sample": False, "eos_token_id": NEVER,
    "output_logits": True, "return_dict_in_generate": True,
}  # fmt: skip


@cache
def flashing(name: str) -> PreTrainedModel:
    return with_flash(ZOO[name].build())


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[FlashReference]:
    """Every test must have gone through the reference."""
    reference = install(monkeypatch)
    yield reference
    assert reference.plain + reference.packed > 0


def position_kinds(name: str) -> list[Positions]:
    return ["original"] if family_of(built(name)).several_axes else ["original", "reindex"]


def chosen(model: PreTrainedModel, method: Method, inputs: Inputs, prompt: Tensor) -> Any:
    """Logits of a pass without cache, and what was kept of each sample."""
    with torch.no_grad(), prune(model, method, prompt=prompt) as run:
        found = model(**inputs, use_cache=False).logits
    return found, [trace.kept.tolist() for trace in run.trace]


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_the_reference_kernel_equals_torch(kernels: FlashReference) -> None:
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, 3, 4, 8, generator=generator)
    key, value = torch.randn(2, 2, 5, 2, 8, generator=generator)
    bounds = [torch.tensor([0, size, 2 * size], dtype=torch.int32) for size in (3, 5)]
    late = torch.ones(3, 5, dtype=torch.bool).tril(2)  # the last query sees the last key
    for causal, mask in ((True, late), (False, None)):
        expected = scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2),
            attn_mask=mask, scale=0.3, enable_gqa=True,
        ).transpose(1, 2)  # fmt: skip
        close(kernels.flash_attn_func(query, key, value, 0.0, 0.3, causal), expected)
        found = kernels.flash_attn_varlen_func(
            query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1), bounds[0], bounds[1],
            max_seqlen_q=3, max_seqlen_k=5, softmax_scale=0.3, causal=causal,
        )  # fmt: skip
        close(found.reshape(expected.shape), expected)


def test_queries_before_all_keys_get_zeros(kernels: FlashReference) -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, size, 2, 8, generator=generator) for size in (5, 3))
    found = kernels.flash_attn_func(query, key, key, causal=True)
    assert torch.equal(found[:, :2], torch.zeros(1, 2, 2, 8))
    close(found[:, 2], key[:, 0])  # the first that sees a key, and sees only this one


@pytest.mark.parametrize("entry", ALL)
def test_the_unpruned_model_is_the_same(entry: ZooEntry, kernels: FlashReference) -> None:
    for side, kinds in KINDS.items():
        for kind in kinds:
            inputs = entry.inputs(kind, side)
            real = inputs["attention_mask"].bool()
            with torch.no_grad():
                found, expected = (
                    model(**inputs, use_cache=False).logits[real]
                    for model in (flashing(entry.name), built(entry.name))
                )
            close(found, expected)
    assert kernels.plain > 0
    assert kernels.packed > 0


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("entry", "stages"), PRUNED)
def test_the_pruned_model_is_the_same(entry: ZooEntry, stages: tuple[int, ...], side: Side) -> None:
    for kind in KINDS[side]:
        inputs = entry.inputs(kind, side)
        prompt = entry.user_words(inputs)
        for positions in position_kinds(entry.name):
            method = KeepRandom(BUDGET, stages, positions=positions)
            left = left_over(inputs, dropped_by(method, inputs, entry.visual(inputs)))
            found, expected = (
                logits(model, inputs, method, prompt)[left]
                for model in (flashing(entry.name), built(entry.name))
            )
            close(found, expected)


def with_a_question(inputs: Inputs, sequences: Tensor) -> Inputs:
    """The text of the next turn, padded as the first."""
    longer = torch.cat([sequences, torch.tensor([[30, 41, 52]]).expand(len(sequences), -1)], 1)
    text = {"input_ids": longer, "attention_mask": torch.ones_like(longer)}
    for name in ("attention_mask", "mm_token_type_ids"):
        if name in inputs:
            filled = torch.full_like(longer, int(name == "attention_mask"))
            filled[:, : inputs[name].shape[1]] = inputs[name]
            text[name] = filled.to(inputs[name].dtype)
    return text


def chat(model: PreTrainedModel, method: Method, inputs: Inputs, prompt: Tensor) -> Any:
    """Words and logits of two answers, the second over the cache of the first."""
    with prune(model, method, prompt=prompt):
        first = generate(model, inputs, **GREEDY, past_key_values=DynamicCache())
        text = with_a_question(inputs, first.sequences)
        second = generate(model, text, **GREEDY, past_key_values=first.past_key_values)
    return second.sequences, torch.stack([*first.logits, *second.logits])


@pytest.mark.parametrize("kind", ["single", "ragged"])
@pytest.mark.parametrize("stages", [(0,), (1, 3)])
@pytest.mark.parametrize("name", FEW)
def test_answers_and_a_second_turn_over_the_kept_cache_are_the_same(
    name: str, stages: tuple[int, ...], kind: str
) -> None:
    entry = ZOO[name]
    inputs = entry.inputs(kind, "left")
    for positions in position_kinds(name):
        method = KeepRandom(BUDGET, stages, positions=positions)
        (words, found), (expected_words, expected) = (
            chat(model, method, inputs, entry.user_words(inputs))
            for model in (flashing(name), built(name))
        )
        assert torch.equal(words, expected_words)
        close(found, expected)


@pytest.mark.parametrize("positions", ["original", "reindex"])
@pytest.mark.parametrize("stages", [(0,), (1, 3)])
@pytest.mark.parametrize("name", ["llava", "llava_next", "internvl"])
def test_a_picture_may_come_in_a_later_turn(
    name: str, stages: tuple[int, ...], positions: Positions
) -> None:
    """With a mask or without one; its kept tokens leave gaps after those that are cached."""
    entry, method = ZOO[name], KeepRandom(BUDGET, stages, positions=positions)
    text, picture = entry.collate(entry.samples("text_only")[:1]), entry.inputs("single")
    length = text["input_ids"].shape[1] + picture["input_ids"].shape[1]
    whole = {**picture, "attention_mask": torch.ones(1, length, dtype=torch.int64)}
    without = {key: value for key, value in picture.items() if key != "attention_mask"}
    outputs = []
    for model in (built(name), flashing(name)):
        for turn in (whole, without):
            with torch.no_grad(), prune(model, method, prompt=entry.user_words(picture)):
                cache = model(input_ids=text["input_ids"], use_cache=True).past_key_values
                seen = model(**turn, past_key_values=cache).logits[:, -1]
                after = model(input_ids=torch.tensor([[33, 44]]), past_key_values=cache).logits
            outputs.append(torch.cat([seen, after[0]]))
    for found in outputs[1:]:
        close(found, outputs[0])


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("name", ["llava", "qwen2_vl"])
def test_a_hand_written_loop_without_mask_is_the_same(name: str, stages: tuple[int, ...]) -> None:
    entry, method = ZOO[name], KeepRandom(BUDGET, stages)
    inputs = entry.inputs("single")
    outputs = []
    for model in (flashing(name), built(name)):
        with torch.no_grad(), prune(model, method, prompt=entry.user_words(inputs)):
            cache = model(**inputs, use_cache=True).past_key_values
            for tokens in ([33], [44, 55, 66], [77]):
                out: Any = model(input_ids=torch.tensor([tokens]), past_key_values=cache)
                outputs.append(out.logits[:, -1])
    close(torch.cat(outputs[:3]), torch.cat(outputs[3:]))


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("name", ["llava", "qwen2_vl"])
def test_a_static_cache_is_cut_to_what_is_filled(name: str, stages: tuple[int, ...]) -> None:
    entry, method = ZOO[name], KeepRandom(BUDGET, stages)
    inputs = entry.inputs("ragged", "left")
    outputs = []
    for model, static in ((flashing(name), True), (built(name), False)):
        cache = StaticCache(model.config.get_text_config(), 128) if static else DynamicCache()
        options = {**GREEDY, "past_key_values": cache, "disable_compile": True}
        with prune(model, method, prompt=entry.user_words(inputs)):
            outputs.append(generate(model, inputs, **options))
    found, expected = outputs
    close(torch.stack(found.logits), torch.stack(expected.logits))


METHODS: list[tuple[str, Method]] = [
    *((name, MoB(7)) for name in FEW),
    *((name, FastV(7)) for name in FEW),
    ("llava", get_method("look_ahead", budget=7)),
    ("qwen2_vl", get_method("look_ahead", budget=7)),
    ("llava_next", get_method("visionzip", budget=7)),
    ("llava", get_method("ficoco_v", budget=0.5)),
]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("name", "method"), METHODS, ids=[f"{method.name}-{name}" for name, method in METHODS]
)
def test_methods_choose_the_same(name: str, method: Method, side: Side) -> None:
    entry = ZOO[name]
    for kind in KINDS[side]:
        inputs = entry.inputs(kind, side)
        prompt = entry.user_words(inputs)
        found, kept = chosen(flashing(name), method, inputs, prompt)
        expected, expected_kept = chosen(built(name), method, inputs, prompt)
        assert kept == expected_kept
        words = inputs["attention_mask"].bool() & ~entry.visual(inputs)
        close(found[words], expected[words])


def test_documents_packed_under_a_mask_of_ones_are_refused() -> None:
    """Flash attention drops such a mask, and reads the documents from the positions."""
    model, inputs = flashing("llava"), ZOO["llava"].inputs("single")
    length = inputs["input_ids"].shape[1]
    packed = {name: torch.cat([each, each], 1) for name, each in inputs.items() if each.dim() == 2}
    packed["pixel_values"] = inputs["pixel_values"].repeat(2, 1, 1, 1)
    packed["position_ids"] = torch.arange(length).repeat(2)[None]
    with torch.no_grad():
        close(model(**packed).logits[:, length:], model(**inputs).logits)  # read as two
        with (
            prune(model, KeepRandom(BUDGET), prompt=torch.zeros(1, 2 * length)),
            pytest.raises(InputError, match="Several documents"),
        ):
            model(**packed)
