"""Masks and positions that say more than which tokens are padding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, StaticCache

import tokencover as tc
from tests.pruning.random_method import KeepRandom, dropped_by
from tests.pruning.test_matrix import BUDGET, built, left_over
from tests.zoo import ZOO
from tests.zoo.entry import SIDES, Inputs, Side
from tests.zoo.oracle import additive_mask, blocked_forward

ENTRY = ZOO["llava"]


def causal_4d(inputs: Inputs, kind: torch.dtype, padding: str) -> Tensor:
    real = inputs["attention_mask"].bool()
    seen = additive_mask(real, torch.float32) == 0
    if padding != "itself":
        seen = seen.where(real[:, None, :, None], torch.tensor(padding == "everything"))
    return seen if kind == torch.bool else torch.zeros(seen.shape).masked_fill(~seen, -1e30)


@pytest.mark.parametrize("padding", ["itself", "everything", "nothing"])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
@pytest.mark.parametrize("stage", [0, 1])
def test_a_causal_table_is_the_same_as_no_table(
    kind: torch.dtype, stage: int, side: Side, padding: str
) -> None:
    model, method = built("llava"), KeepRandom(BUDGET, (stage,))
    inputs = ENTRY.inputs("ragged", side)
    words = ENTRY.user_words(inputs)
    gone = dropped_by(method, inputs, ENTRY.visual(inputs))
    table = {**inputs, "attention_mask": causal_4d(inputs, kind, padding)}
    if side == "left":  # without a mask of padding, positions begin at the first column
        table["position_ids"] = (inputs["attention_mask"].cumsum(-1) - 1).clamp(min=0)
        inputs["position_ids"] = table["position_ids"]
    if (side, padding) == (
        "right",
        "everything",
    ):  # such padding cannot be distinguished from tokens
        with tc.prune(model, method, prompt=words), pytest.raises(tc.InputError):
            model(**table, use_cache=False)
        return
    with torch.no_grad(), tc.prune(model, method, prompt=words):
        found = model(**table, use_cache=False).logits
    left = left_over(inputs, gone)
    expected = blocked_forward(model, inputs, gone[stage], stage)
    torch.testing.assert_close(found[left], expected[left], atol=1e-5, rtol=0)


@pytest.mark.parametrize("place", ["start", "middle", "end"])
@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_a_table_with_more_structure_is_refused(kind: torch.dtype, place: str) -> None:
    model = built("llava")
    inputs = ENTRY.inputs("single")
    length = inputs["input_ids"].shape[1]
    table = torch.ones(length, length, dtype=torch.bool).tril()
    cut = {"middle": length // 2, "start": 2, "end": length - 2}[place]
    table[cut:, :cut] = False  # two documents
    mask: Tensor = table[None, None]
    if kind != torch.bool:
        mask = torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))
    before = {**inputs, "attention_mask": mask}
    run = tc.prune(model, KeepRandom(BUDGET), prompt=ENTRY.user_words(inputs))
    with run, pytest.raises(tc.InputError, match="attention_mask"):
        model(**before)


def test_packed_documents_are_refused() -> None:
    model = built("llava")
    inputs = ENTRY.inputs("single")
    length = inputs["input_ids"].shape[1]
    half = length // 2
    positions = torch.cat([torch.arange(half), torch.arange(length - half)])[None]
    del inputs["attention_mask"]
    run = tc.prune(model, KeepRandom(BUDGET), prompt=ENTRY.user_words(inputs))
    with run, pytest.raises(tc.InputError, match="position_ids"):
        model(**inputs, position_ids=positions)


def test_positions_of_padded_rows_are_no_documents() -> None:
    model, method = built("llava"), KeepRandom(BUDGET)
    inputs = ENTRY.inputs("ragged")
    positions = (inputs["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    gone = dropped_by(method, inputs, ENTRY.visual(inputs))
    longer = {**inputs, "position_ids": positions}
    with torch.no_grad(), tc.prune(model, method, prompt=ENTRY.user_words(inputs)):
        found = model(**longer, use_cache=False).logits
    expected = blocked_forward(model, longer, gone[1], 1)
    left = left_over(inputs, gone)
    torch.testing.assert_close(found[left], expected[left], atol=1e-5, rtol=0)


def test_columns_of_tokens_to_come_are_left_out() -> None:
    """A mask as long as a static cache, which transformers takes."""
    model, inputs, method = built("llava"), ENTRY.inputs("ragged"), KeepRandom(BUDGET)
    real = inputs["attention_mask"]
    longer = {**inputs, "attention_mask": torch.nn.functional.pad(real, (0, 9))}
    room = StaticCache(config=model.config.get_text_config(), max_cache_len=real.shape[1] + 9)
    with torch.no_grad(), tc.prune(model, method, prompt=ENTRY.user_words(inputs)):
        expected = model(**inputs).logits[real.bool()]
        for options in ({}, {"past_key_values": room}):
            found = model(**longer, **options).logits[real.bool()]
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("stage", [0, 2])
def test_keys_and_values_put_into_a_cache_by_hand_are_refused(stage: int) -> None:
    """Pruned before block 0 all layers are of one length: the mask tells that some is missing."""
    model, inputs = built("llava"), ENTRY.inputs("ragged")
    mask = torch.nn.functional.pad(inputs["attention_mask"], (0, 1), value=1)
    word = {"input_ids": torch.full((3, 1), 40), "attention_mask": mask}
    words, method = ENTRY.user_words(inputs), KeepRandom(BUDGET, (stage,))
    with torch.no_grad(), tc.prune(model, method, prompt=words):
        cache = model(**inputs, use_cache=True).past_key_values
        by_hand = DynamicCache([(layer.keys, layer.values) for layer in cache.layers])
        with pytest.raises(tc.InputError, match="deepcopy"):
            model(**word, past_key_values=by_hand)
        with pytest.raises(tc.InputError, match="column"):
            model(**{**word, "attention_mask": mask[:, -1:]}, past_key_values=cache)
