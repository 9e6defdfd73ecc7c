"""What pruning knows about a cache goes where the cache goes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel, StaticCache

import tokencover as tc
from tests.pruning.random_method import KeepRandom, dropped_by
from tests.pruning.test_matrix import BUDGET, built
from tests.zoo import ZOO
from tests.zoo.entry import Inputs, ZooEntry
from tests.zoo.oracle import decoder_blocks, recompute_decode
from tokencover.errors import InputError

FEW = [pytest.param(ZOO[name], id=name) for name in ("llava", "qwen2_vl", "qwen3_vl")]
STAGES = [(0,), (1,), (3,)]
FIRST = torch.tensor([[33, 44], [35, 46], [37, 48]])
SECOND = torch.tensor([[51, 52], [53, 54], [55, 56]])


def prefill(model: PreTrainedModel, inputs: Inputs) -> Any:
    return model(**inputs, use_cache=True, past_key_values=DynamicCache()).past_key_values


def go_on(model: PreTrainedModel, cache: Any, mask: Tensor, words: Tensor) -> Tensor:
    """Logits after each of some words, one call a word, over a cache of left-padded rows."""
    steps = []
    for place in range(words.shape[1]):
        inputs = {"input_ids": words[:, place : place + 1]}
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
        if not bool(mask.all()):  # the Qwens cannot read a mask here without positions
            inputs["attention_mask"] = mask
        out = model(**inputs, past_key_values=cache, use_cache=True)
        steps.append(out.logits[:, -1])
    return torch.stack(steps, 1)


def expected_steps(
    model: PreTrainedModel, inputs: Inputs, words: Tensor, gone: Tensor, stage: int
) -> Tensor:
    return recompute_decode(model, inputs, words, gone, stage)[:, 1:]


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)


class Case:
    """A ragged batch, pruned into a cache; a single sample for families that need positions."""

    def __init__(self, entry: ZooEntry, stages: tuple[int, ...]) -> None:
        self.model, self.stage = built(entry.name), stages[0]
        self.inputs = entry.inputs("ragged" if entry.name == "llava" else "single")
        self.method = KeepRandom(BUDGET, stages)
        self.prompt = entry.user_words(self.inputs)
        self.gone = dropped_by(self.method, self.inputs, entry.visual(self.inputs))[self.stage]
        self.mask = self.inputs["attention_mask"]
        self.first, self.second = FIRST[: len(self.mask)], SECOND[: len(self.mask)]

    def prune(self, **settings: Any) -> Any:
        return tc.prune(self.model, self.method, prompt=self.prompt, **settings)

    def expect(self, words: Tensor, rows: Tensor | None = None) -> Tensor:
        steps = expected_steps(self.model, self.inputs, words, self.gone, self.stage)
        return steps if rows is None else steps[rows]


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("entry", FEW)
@pytest.mark.parametrize("way", [copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))],
                         ids=["deepcopy", "pickle"])  # fmt: skip
def test_a_copied_prefix_is_used_twice(entry: ZooEntry, stages: tuple[int, ...], way: Any) -> None:
    case = Case(entry, stages)
    with torch.no_grad(), case.prune():
        cache = prefill(case.model, case.inputs)
        other = way(cache)
        first = go_on(case.model, cache, case.mask, case.first)
        second = go_on(case.model, other, case.mask, case.second)
    close(first, case.expect(case.first))
    close(second, case.expect(case.second))


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("entry", [FEW[0]])
def test_rows_change_places(entry: ZooEntry, stages: tuple[int, ...]) -> None:
    case = Case(entry, stages)
    order = torch.tensor([2, 0, 1])
    with torch.no_grad(), case.prune():
        cache = prefill(case.model, case.inputs)
        cache.reorder_cache(order)
        found = go_on(case.model, cache, case.mask[order], FIRST[order])
    close(found, case.expect(FIRST, order))


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("entry", [FEW[0]])
def test_some_rows_go_on(entry: ZooEntry, stages: tuple[int, ...]) -> None:
    case = Case(entry, stages)
    rows = torch.tensor([2, 0])
    with torch.no_grad(), case.prune():
        cache = prefill(case.model, case.inputs)
        cache.batch_select_indices(rows)
        found = go_on(case.model, cache, case.mask[rows], FIRST[rows])
    close(found, case.expect(FIRST, rows))


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("entry", [FEW[0]])
def test_rows_are_repeated(entry: ZooEntry, stages: tuple[int, ...]) -> None:
    case = Case(entry, stages)
    with torch.no_grad(), case.prune():
        cache = prefill(case.model, case.inputs)
        cache.batch_repeat_interleave(2)
        rows = torch.arange(3).repeat_interleave(2)
        found = go_on(case.model, cache, case.mask[rows], FIRST[rows])
    close(found, case.expect(FIRST, rows))


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("entry", FEW)
@pytest.mark.parametrize("negative", [True, False])
def test_new_words_are_cropped_away(
    entry: ZooEntry, stages: tuple[int, ...], negative: bool
) -> None:
    case = Case(entry, stages)
    with torch.no_grad(), case.prune():
        cache = prefill(case.model, case.inputs)
        length = case.inputs["input_ids"].shape[1]
        go_on(case.model, cache, case.mask, case.first)
        assert cache.get_seq_length() == length + 2
        cache.crop(-2 if negative else length)
        assert cache.get_seq_length() == length
        found = go_on(case.model, cache, case.mask, case.second)
    close(found, case.expect(case.second))


def test_cropping_into_a_pruned_prompt_is_refused() -> None:
    case = Case(ZOO["llava"], (1,))
    with torch.no_grad(), case.prune():
        cache = prefill(case.model, case.inputs)
        with pytest.raises(tc.InputError, match="crop"):
            cache.crop(5)


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("entry", FEW)
def test_a_cache_goes_on_in_another_with(entry: ZooEntry, stages: tuple[int, ...]) -> None:
    case = Case(entry, stages)
    with torch.no_grad():
        with case.prune():
            cache = prefill(case.model, case.inputs)
        with case.prune():
            found = go_on(case.model, cache, case.mask, case.first)
    close(found, case.expect(case.first))


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("entry", FEW)
def test_a_cache_that_outlives_its_with_is_refused(
    entry: ZooEntry, stages: tuple[int, ...]
) -> None:
    case = Case(entry, stages)
    with torch.no_grad():
        with case.prune():
            cache = prefill(case.model, case.inputs)
        for each in (cache, copy.deepcopy(cache)):
            with pytest.raises(tc.InputError, match="cache"):
                go_on(case.model, each, case.mask, case.first)
        other = tc.prune(case.model, KeepRandom(BUDGET, (2,)), prompt=case.prompt)
        with other, pytest.raises(tc.InputError, match="cache"):
            go_on(case.model, cache, case.mask, case.first)


def test_a_cache_that_was_reset_is_new() -> None:
    case = Case(ZOO["llava"], (1,))
    with torch.no_grad():
        cache = StaticCache(case.model.config.get_text_config(), max_cache_len=128)
        plain = case.model(**case.inputs).logits[:, -1]
        with case.prune():
            case.model(**case.inputs, past_key_values=cache)
        cache.reset()
        found = case.model(**case.inputs, past_key_values=cache).logits[:, -1]
    close(found, plain)


def test_a_cache_in_which_nothing_was_dropped_is_free() -> None:
    case = Case(ZOO["llava"], (1,))
    with torch.no_grad():
        with tc.prune(case.model, KeepRandom(None), prompt=case.prompt):
            cache = prefill(case.model, case.inputs)
        found = go_on(case.model, cache, case.mask, case.first)
    close(found, recompute_decode(case.model, case.inputs, FIRST)[:, 1:])


@contextmanager
def failing(module: torch.nn.Module, error: type[BaseException]) -> Iterator[None]:
    """Let a module raise an error instead of running."""

    def fail(*_: object) -> None:
        raise error("on purpose")

    handle = module.register_forward_pre_hook(fail)
    try:
        yield
    finally:
        handle.remove()


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("entry", FEW[:2])
def test_a_pass_that_fails_in_its_first_block_leaves_the_cache_as_it_was(
    entry: ZooEntry, stages: tuple[int, ...]
) -> None:
    case = Case(entry, stages)
    block = decoder_blocks(case.model)[0].get_submodule("self_attn")
    with torch.no_grad(), case.prune():
        cache = prefill(case.model, case.inputs)
        length = cache.get_seq_length()
        with pytest.raises(RuntimeError, match="on purpose"), failing(block, RuntimeError):
            go_on(case.model, cache, case.mask, case.first)
        assert cache.get_seq_length() == length
        found = go_on(case.model, cache, case.mask, case.first)
    close(found, case.expect(case.first))


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_cache_carried_out_of_a_with_that_failed_is_refused_at_once(
    error: type[BaseException],
) -> None:
    """Not only when the second block would add to it."""
    case = Case(ZOO["llava"], (1,))
    block = decoder_blocks(case.model)[0].get_submodule("self_attn")
    with torch.no_grad():
        with case.prune():
            cache = prefill(case.model, case.inputs)
        true_lengths = [layer.get_seq_length() for layer in cache.layers]
        with pytest.raises(error, match="on purpose"), case.prune(), failing(block, error):
            go_on(case.model, cache, case.mask, case.first)
        with pytest.raises(tc.InputError, match="Stay inside the `with`"):
            go_on(case.model, cache, case.mask, case.first)
        assert [layer.get_seq_length() for layer in cache.layers] == true_lengths


@pytest.mark.parametrize("entry", FEW[:2])
def test_a_picture_that_fails_on_its_way_does_not_change_the_length_of_the_text(
    entry: ZooEntry,
) -> None:
    """What is dropped before the first block is missing only once the rest is in the cache."""
    case = Case(entry, (0,))
    block = decoder_blocks(case.model)[0].get_submodule("self_attn")
    with torch.no_grad(), case.prune():
        cache = prefill(case.model, case.inputs)
        length = cache.get_seq_length()
        again = {**case.inputs, "attention_mask": torch.cat([case.mask, case.mask], 1)}
        with pytest.raises(RuntimeError, match="on purpose"), failing(block, RuntimeError):
            case.model(**again, past_key_values=cache)
        assert cache.get_seq_length() == length


@pytest.mark.parametrize("stages", [(1,), (0, 2)])
def test_keys_and_values_put_into_another_cache_by_hand_are_refused(
    stages: tuple[int, ...],
) -> None:
    case = Case(ZOO["llava"], stages)
    with torch.no_grad(), case.prune():
        bare = DynamicCache()
        for number, layer in enumerate(prefill(case.model, case.inputs).layers):
            bare.update(layer.keys, layer.values, number)
        with pytest.raises(InputError, match="differ in length"):
            go_on(case.model, bare, case.mask, case.first)


def test_windows_that_are_full_are_not_cropped_by_halves() -> None:
    entry = ZOO["gemma3"]
    model, inputs = built(entry.name), entry.inputs("single")
    with torch.no_grad(), tc.prune(model, KeepRandom(BUDGET), prompt=entry.user_words(inputs)):
        cache = model(**inputs, use_cache=True).past_key_values
        model(input_ids=FIRST[:1], past_key_values=cache, use_cache=True)
        before = [layer.keys.shape for layer in cache.layers]
        with pytest.raises(InputError, match="cannot remove its newest tokens"):
            cache.crop(-1)
        assert [layer.keys.shape for layer in cache.layers] == before
        again = model(input_ids=FIRST[:1], past_key_values=cache, use_cache=True)
    assert again.past_key_values.get_seq_length() == inputs["input_ids"].shape[1] + 4
