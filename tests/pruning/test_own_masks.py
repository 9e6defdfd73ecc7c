"""Blocks that do not see all tokens before them: windows, chunks, images that see themselves."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    DynamicCache,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PreTrainedModel,
    StaticCache,
)

import tokencover as tc
from tests.pruning.random_method import KeepRandom, dropped_by
from tests.pruning.test_matrix import BUDGET, NEVER, generate, left_over, logits
from tests.pruning.test_probe import assert_true, eavesdropping, second_turn, watch
from tests.zoo import ZOO, gemma4, llama4, llava
from tests.zoo.entry import SIDES, Inputs, Side, ZooEntry
from tests.zoo.oracle import blocked_forward_schedule, decoder_blocks, recompute_decode
from tests.zoo.vision_encoders import clip_encoder
from tests.zoo.vocabulary import IMAGE
from tests.zoo.weights import seeded, text_config
from tests.zoo.windows import WINDOW
from tokencover.families import list_claims
from tokencover.methods import Method


@cache
def built(entry: ZooEntry) -> PreTrainedModel:
    return entry.build()


def count_windows(model: PreTrainedModel) -> int:
    """The width of the model's windows, 0 if it has none."""
    text: Any = model.config.get_text_config()
    width = getattr(text, "sliding_window", None) or getattr(text, "attention_chunk_size", None)
    return int(width or 0)


def build_mistral(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    config = LlavaConfig(
        vision_config=clip_encoder(llava.SIDE),
        text_config=text_config(layers, model_type="mistral", sliding_window=WINDOW),
        image_token_index=IMAGE,
        image_seq_length=llava.GRID.tokens,
    )
    return seeded(LlavaForConditionalGeneration, config, attn_implementation, dtype)


MISTRAL = replace(ZOO["llava"], name="llava, mistral", build=build_mistral, own_masks=True)
"""Windows in every block of a family that seldom has any."""
OWN = [pytest.param(entry, id=entry.name) for entry in (*ZOO.values(), MISTRAL) if entry.own_masks]
WINDOWED = [
    pytest.param(entry, id=entry.name)
    for entry in (*(ZOO[name] for name in ("gemma3", "llama4", "paligemma2")), MISTRAL)
]
LONG = 14
"""More new tokens than any window of the zoo is wide."""
OPTIONS: dict[str, Any] = {"max_new_tokens": LONG, "do_sample": False, "eos_token_id": NEVER}


SCALING = replace(ZOO["llama4"], name="llama4, scaled", build=partial(llama4.build, floor_scale=5))
"""Queries of blocks 1 and 4 grow with every fifth token."""
SHARING = replace(ZOO["gemma4"], name="gemma4, shared keys", build=partial(gemma4.build, shared=2))
"""Blocks 3 and 4 attend to the keys of blocks 2 and 1."""


def assert_decodes(entry: ZooEntry, model: PreTrainedModel, inputs: Inputs, stage: int) -> None:
    """Every step of a long answer is what computing everything from scratch gives."""
    method = KeepRandom(BUDGET, (stage,))
    with tc.prune(model, method, prompt=entry.user_words(inputs)):
        found = generate(model, inputs, output_logits=True, return_dict_in_generate=True, **OPTIONS)
    words = found.sequences[:, inputs["input_ids"].shape[1] :]
    dropped = dropped_by(method, inputs, entry.visual(inputs))[stage]
    expected = recompute_decode(model, inputs, words[:, :-1], dropped, stage)
    torch.testing.assert_close(torch.stack(found.logits, 1), expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_queries_that_grow_with_their_place_in_the_text(stage: int) -> None:
    model, inputs = built(SCALING), SCALING.inputs("ragged")
    assert_decodes(SCALING, model, inputs, stage)
    plain = blocked_forward_schedule(built(ZOO["llama4"]), inputs, {})
    assert (blocked_forward_schedule(model, inputs, {}) - plain).abs().max() > 0.1


@pytest.mark.parametrize("stage", [0, 1])
def test_blocks_that_attend_to_keys_of_earlier_blocks(stage: int) -> None:
    assert_decodes(SHARING, built(SHARING), SHARING.inputs("ragged"), stage)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("side", SIDES)
def test_last_logits_of_a_model_with_shared_keys(side: Side, count: int) -> None:
    """Since transformers 5.23 blocks that share keys run on these tokens only."""
    model, inputs = built(SHARING), SHARING.inputs("ragged", side)
    with torch.no_grad(), tc.prune(model, KeepRandom(BUDGET), prompt=SHARING.user_words(inputs)):
        expected = model(**inputs).logits[:, -count:]
        found = model(**inputs, logits_to_keep=count).logits
    real = inputs["attention_mask"][:, -count:].bool()
    torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=0)


def test_a_second_turn_over_shared_keys() -> None:
    """Several new tokens over a cache that lacks dropped ones."""
    entry, model = SHARING, built(SHARING)
    inputs = entry.inputs("single")
    words = torch.tensor([[30, 41, 52]])
    method = KeepRandom(BUDGET, (0,))
    dropped = dropped_by(method, inputs, entry.visual(inputs))[0]
    expected = recompute_decode(model, inputs, words, dropped)[:, -1:]
    with torch.no_grad(), tc.prune(model, method, prompt=entry.user_words(inputs)):
        cache = model(**inputs, use_cache=True).past_key_values
        found = model(input_ids=words, past_key_values=cache, logits_to_keep=1).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_nothing_is_dropped_between_shared_keys_and_their_blocks() -> None:
    model, words = built(SHARING), SHARING.user_words(SHARING.inputs("single"))
    with pytest.raises(tc.InputError, match=r"layers 3 to 4 .* keys of layer 1.* layer 1 or earl"):
        tc.prune(model, KeepRandom(BUDGET, (1, 2)), prompt=words)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("stages", [(0,), (1, 3)])
def test_windows_of_a_family_that_seldom_has_any(stages: tuple[int, ...], side: Side) -> None:
    model, inputs = built(MISTRAL), MISTRAL.inputs("ragged", side)
    method = KeepRandom(BUDGET, stages)
    gone = dropped_by(method, inputs, MISTRAL.visual(inputs))
    found = logits(model, inputs, method, MISTRAL.user_words(inputs))
    expected = blocked_forward_schedule(model, inputs, gone)
    left = left_over(inputs, gone)
    torch.testing.assert_close(found[left], expected[left], atol=1e-5, rtol=0)


@pytest.mark.parametrize("stage", [0, 3])
@pytest.mark.parametrize("entry", OWN)
def test_decoding_until_the_whole_prompt_has_left_the_window(entry: ZooEntry, stage: int) -> None:
    assert count_windows(built(entry)) < LONG
    assert_decodes(entry, built(entry), entry.inputs("ragged"), stage)


@pytest.mark.parametrize("entry", OWN)
def test_windows_tell_something_in_these_prompts(entry: ZooEntry) -> None:
    """Else the tests above would pass without them."""
    model = built(entry)
    seen: list[Tensor | None] = []
    block = decoder_blocks(model)[-2]
    handle = block.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(kwargs["attention_mask"]), with_kwargs=True
    )
    with torch.no_grad():
        model(**entry.inputs("single"), use_cache=False)
    handle.remove()
    (mask,) = seen
    assert mask is not None
    assert not torch.equal(mask[0, 0], torch.ones_like(mask[0, 0]).tril())


@pytest.mark.parametrize("entry", WINDOWED)
def test_the_same_words_without_a_cache_and_in_beams(entry: ZooEntry) -> None:
    reads = entry.name == "gemma3"
    method = tc.FastV(BUDGET, after=2) if reads else KeepRandom(BUDGET, (1, 3))
    model, inputs = built(entry), entry.inputs("ragged")
    for beams in (1,) if entry.name == "llama4" else (1, 3):  # it repeats no images for beams
        options = {**OPTIONS, "num_beams": beams}
        with tc.prune(model, method, prompt=entry.user_words(inputs)):
            cached = generate(model, inputs, **options)
            assert torch.equal(generate(model, inputs, use_cache=False, **options), cached)
        for row, sample in enumerate(entry.samples("ragged")):
            alone = entry.collate([sample])
            with tc.prune(model, method, prompt=entry.user_words(alone)):
                single = generate(model, alone, **options)
            assert torch.equal(single[0, -LONG:], cached[row, -LONG:])


@pytest.mark.parametrize("name", ["cohere2_vision", "paligemma"])
def test_rows_and_keys_are_those_of_eager_attention(name: str) -> None:
    """Rows with windows, blocks that do not rotate, and rows that see what comes after them."""
    entry, inputs = ZOO[name], ZOO[name].inputs("ragged")
    eager = entry.build("eager")
    words, visual = entry.user_words(inputs), entry.visual(inputs)
    method = watch(built(entry), inputs, words, visual, blocks_watched=(0, 1, 2))
    with eavesdropping(eager) as truth:
        blocked_forward_schedule(eager, inputs, dropped_by(method, inputs, visual))
    assert len(method.seen) == 4
    assert_true(method, truth, eager, visual)


def without_marks(inputs: Inputs) -> Inputs:
    """Only windows, no image that sees itself.

    Where a chat goes on, transformers reads the marks of new tokens in places of old ones.
    """
    return {name: value for name, value in inputs.items() if name != "token_type_ids"}


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("stages", [(0,), (1, 3)])
@pytest.mark.parametrize("entry", WINDOWED)
def test_a_second_picture_over_a_kept_cache(
    entry: ZooEntry, stages: tuple[int, ...], plain: bool
) -> None:
    model, method = built(entry), KeepRandom(BUDGET, stages)
    cache: Any = DynamicCache() if plain else DynamicCache(config=model.config)
    first, second, both = map(without_marks, second_turn(entry))
    start, ones = first["input_ids"].shape[1], torch.ones_like(both["input_ids"])
    found = []
    with torch.no_grad(), tc.prune(model, method, prompt=torch.ones(1, 1, dtype=torch.bool)):
        for inputs, mask in ((first, ones[:, :start]), (second, ones)):
            turn = {**inputs, "attention_mask": mask}
            found.append(model(**turn, past_key_values=cache, use_cache=True).logits)
            cache = deepcopy(cache)
    parts = [dropped_by(method, each, entry.visual(each)) for each in (first, second)]
    gone = {stage: torch.cat([part[stage] for part in parts], 1) for stage in stages}
    expected = blocked_forward_schedule(model, both, gone)
    left = ~torch.stack(list(gone.values())).any(0)
    torch.testing.assert_close(torch.cat(found, 1)[left], expected[left], atol=2e-5, rtol=0)


@pytest.mark.parametrize("stages", [(0,), (1, 3)])
@pytest.mark.parametrize("name", ["gemma3", "llama4"])
def test_a_picture_after_words_over_a_kept_cache(name: str, stages: tuple[int, ...]) -> None:
    """The masks of the second pass are those of a cache that was never pruned."""
    entry, method = ZOO[name], KeepRandom(BUDGET, stages)
    model = built(entry)
    words, picture = (
        without_marks(entry.collate(entry.samples(kind)[-1:])) for kind in ("text_only", "ragged")
    )
    ids = torch.cat([words["input_ids"], picture["input_ids"]], 1)
    both = {**picture, "input_ids": ids, "attention_mask": torch.ones_like(ids)}
    cache = DynamicCache(config=model.config)
    with torch.no_grad(), tc.prune(model, method, prompt=torch.ones(1, 1, dtype=torch.bool)):
        model(**words, past_key_values=cache, use_cache=True)
        second = {**picture, "attention_mask": both["attention_mask"]}
        found = model(**second, past_key_values=cache, use_cache=True).logits
    parts = dropped_by(method, picture, entry.visual(picture))
    before = torch.zeros_like(words["input_ids"], dtype=torch.bool)
    gone = {stage: torch.cat([before, part], 1) for stage, part in parts.items()}
    expected = blocked_forward_schedule(model, both, gone)[:, before.shape[1] :]
    left = left_over(picture, parts)
    torch.testing.assert_close(found[left], expected[left], atol=2e-5, rtol=0)


@pytest.mark.parametrize("name", ["gemma3", "llama4"])
def test_guessed_words_are_taken_back_from_windows(name: str) -> None:
    entry = ZOO[name]
    model, inputs = built(entry), entry.inputs("single")
    with tc.prune(model, KeepRandom(BUDGET, (1, 3)), prompt=entry.user_words(inputs)):
        plain = generate(model, inputs, **OPTIONS)
        assert torch.equal(generate(model, inputs, prompt_lookup_num_tokens=3, **OPTIONS), plain)


def test_methods_claim_these_families_only_as_far_as_they_run_there() -> None:
    claims = {claim.family.name: claim for claim in list_claims(tc.FastV)}
    assert claims["Gemma 3"].as_published
    assert "Llama 4" not in claims
    assert "Gemma 3" not in [claim.family.name for claim in list_claims(tc.LookAhead)]
    anew = {claim.family.name: claim for claim in list_claims(tc.DivPrune)}
    assert not anew["Gemma 3"].as_published


@pytest.mark.parametrize("entry", OWN[:1])
def test_what_leaves_nothing_to_cut_from_is_refused(entry: ZooEntry) -> None:
    inputs, model = entry.inputs("single"), entry.build()
    words, method = entry.user_words(inputs), KeepRandom(BUDGET)
    cache = StaticCache(model.config.get_text_config(), max_cache_len=80)
    with (
        torch.no_grad(),
        tc.prune(model, method, prompt=words),
        pytest.raises(tc.InputError, match="A StaticCache keeps windows"),
    ):
        model(**inputs, past_key_values=cache, use_cache=True)
    with (
        torch.no_grad(),
        tc.prune(model, tc.LookAhead(BUDGET), prompt=words),
        pytest.raises(tc.InputError, match="Use a method that does not look ahead"),
    ):
        model(**inputs)
    model.get_decoder().config._attn_implementation = "flash_attention_2"
    with (
        torch.no_grad(),
        tc.prune(model, KeepRandom(BUDGET, (0,)), prompt=words),
        pytest.raises(tc.InputError, match=r"'flash_attention_2' counts windows"),
    ):
        model(**inputs)


@pytest.mark.parametrize("name", ["gemma3", "cohere2_vision"])
@pytest.mark.parametrize("method", [KeepRandom(BUDGET), tc.FastV(BUDGET, after=2)])
def test_a_static_cache_is_refused_before_anything_is_read(name: str, method: Method) -> None:
    """`generate` makes tables for it, as wide as the cache."""
    inputs = ZOO[name].inputs("mixed")
    with (
        tc.prune(built(ZOO[name]), method, prompt=ZOO[name].user_words(inputs)),
        pytest.raises(tc.InputError, match="Use a DynamicCache"),
    ):
        generate(built(ZOO[name]), inputs, cache_implementation="static", max_new_tokens=2)
