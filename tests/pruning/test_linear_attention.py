"""Decoders that are mostly linear attention: dropped tokens leave no trace in its states.

The oracle runs the blocks by hand on one row without padding, and takes the dropped tokens out.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, StaticCache

import tokencover as tc
from tests.pruning.gathering import always_gather
from tests.pruning.random_method import KeepRandom, dropped_by
from tests.pruning.test_matrix import BUDGET, NEVER, built, generate, left_over, logits
from tests.zoo import SIDES, ZOO
from tests.zoo.entry import Side, ZooEntry
from tests.zoo.oracle import (
    blocked_forward_schedule,
    deleting_forward,
    recompute_decode,
    record_layers,
)
from tests.zoo.oracle import recompute_greedy as greedy

HYBRIDS = [pytest.param(entry, id=name) for name, entry in ZOO.items() if entry.recurrent]
ENTRY = ZOO["qwen3_5"]
"""Blocks 2 and 4 of its 5 are attention."""
STAGES = [(0,), (1,), (2,), (3,), (4,), (0, 1), (0, 2), (1, 3)]
GREEDY: dict[str, Any] = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": NEVER}


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)


class Case:
    """A batch that is pruned at some places of a model."""

    def __init__(self, stages: tuple[int, ...], kind: str = "single", side: Side = "left") -> None:
        self.model: Any = built(ENTRY.name)
        self.inputs, self.stage = ENTRY.inputs(kind, side), stages[0]
        self.method = KeepRandom(BUDGET, stages)
        self.gone = dropped_by(self.method, self.inputs, ENTRY.visual(self.inputs))
        self.prompt, self.mask = ENTRY.user_words(self.inputs), self.inputs["attention_mask"]

    def prune(self, method: Any = None) -> Any:
        return tc.prune(self.model, method or self.method, prompt=self.prompt)

    def fill(self, cache: Any = None) -> Any:
        """A cache that holds the prompt."""
        if cache is None:
            cache = DynamicCache(config=self.model.config.get_text_config())
        self.model(**self.inputs, use_cache=True, past_key_values=cache)
        return cache

    def go_on(self, cache: Any, words: Tensor) -> Tensor:
        """Logits after each word, one call a word."""
        steps = [self.model(input_ids=word[:, None], past_key_values=cache) for word in words.T]
        return torch.stack([step.logits[:, -1] for step in steps], 1)

    def expect(self, words: Tensor) -> Tensor:
        return recompute_decode(self.model, self.inputs, words, self.gone[self.stage], self.stage)


WORDS = torch.tensor([[33, 44, 51]])


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("stages", STAGES)
def test_dropping_equals_deleting(stages: tuple[int, ...], side: Side) -> None:
    for kind in ("ragged", "image_and_video"):
        case = Case(stages, kind, side)
        found = logits(case.model, case.inputs, case.method, case.prompt)
        expected = deleting_forward(case.model, case.inputs, case.gone)
        left = left_over(case.inputs, case.gone)
        torch.testing.assert_close(found[left], expected[left], atol=1e-5, rtol=0)


def test_the_two_oracles_agree_where_all_blocks_are_attention() -> None:
    for entry in (ZOO["llava"], ZOO["qwen2_vl"]):
        model, inputs = built(entry.name), entry.inputs("ragged", "left")
        gone = dropped_by(KeepRandom(BUDGET, (1, 3)), inputs, entry.visual(inputs))
        left = left_over(inputs, gone)
        one = deleting_forward(model, inputs, gone)
        close(one[left], blocked_forward_schedule(model, inputs, gone)[left])


@pytest.mark.parametrize("stages", [(0,), (2,), (3,)])
def test_words_with_and_without_a_cache_are_those_of_the_oracle(stages: tuple[int, ...]) -> None:
    case = Case(stages, "ragged")
    with case.prune():
        cached = generate(case.model, case.inputs, **GREEDY)
        again = generate(case.model, case.inputs, **GREEDY, use_cache=False)
    start = case.inputs["input_ids"].shape[1]
    expected = greedy(case.model, case.inputs, 4, case.gone[case.stage], case.stage)
    assert torch.equal(cached[:, start:], expected)
    assert torch.equal(again, cached)


@pytest.mark.parametrize("stages", [(0,), (3,)])
def test_beams_of_a_batch_equal_those_of_its_rows(stages: tuple[int, ...]) -> None:
    case = Case(stages, "ragged")
    options = {**GREEDY, "num_beams": 3}
    start = case.inputs["input_ids"].shape[1]
    with case.prune():
        together = generate(case.model, case.inputs, **options)[:, start:]
        without = generate(case.model, case.inputs, **options, use_cache=False)[:, start:]
    assert torch.equal(together, without)
    for row, sample in enumerate(ENTRY.samples("ragged")):
        inputs = ENTRY.collate([sample])
        with tc.prune(case.model, case.method, prompt=ENTRY.user_words(inputs)):
            alone = generate(case.model, inputs, **options)
        assert torch.equal(alone[0, inputs["input_ids"].shape[1] :], together[row])


@pytest.mark.parametrize("stages", [(0,), (1,), (4,)])
def test_a_kept_cache_knows_the_length_of_the_text_and_goes_on(stages: tuple[int, ...]) -> None:
    case = Case(stages)
    length = case.mask.shape[1]
    with torch.no_grad(), case.prune():
        cache = case.fill()
        other = copy.deepcopy(cache)
        assert cache.get_seq_length() == other.get_seq_length() == length
        found = case.go_on(cache, WORDS)
        second = case.go_on(other, WORDS.flip(-1))
        assert cache.get_seq_length() == length + 3
        assert cache.layers[4].get_seq_length() < length
    close(found, case.expect(WORDS)[:, 1:])
    close(second, case.expect(WORDS.flip(-1))[:, 1:])


def test_a_static_cache_gives_the_same_words() -> None:
    case = Case((1,), "ragged")
    cache = StaticCache(case.model.config.get_text_config(), max_cache_len=128)
    with case.prune():
        found = generate(
            case.model, case.inputs, **GREEDY, past_key_values=cache, disable_compile=True
        )
        assert torch.equal(found, generate(case.model, case.inputs, **GREEDY))


def test_rows_of_a_cache_change_places() -> None:
    case = Case((1,), "single")
    twice = {
        name: torch.cat([each, each]) for name, each in case.inputs.items()
    }  # the same image, other words
    twice["input_ids"][1, -6:-3] = torch.tensor([61, 62, 63])
    prompt = ENTRY.user_words(twice)
    method = KeepRandom(BUDGET, (1,))
    order = torch.tensor([1, 0])
    words = torch.tensor([[33, 44], [51, 52]])
    with torch.no_grad(), tc.prune(case.model, method, prompt=prompt):
        cache: Any = DynamicCache(config=case.model.config.get_text_config())
        case.model(**twice, past_key_values=cache)
        cache.reorder_cache(order)
        found = case.go_on(cache, words[order])
        with pytest.raises(tc.InputError, match="has no batch_select_indices"):
            cache.batch_select_indices(torch.tensor([1]))
        with pytest.raises(tc.InputError, match="cannot remove its newest tokens"):
            cache.crop(-1)
    gone = dropped_by(method, twice, ENTRY.visual(twice))[1]
    expected = recompute_decode(case.model, twice, words, gone, 1)[:, 1:]
    close(found, expected[order])


@pytest.mark.parametrize("stages", [(0,), (3,)])
def test_a_cache_that_outlives_its_with_is_refused(stages: tuple[int, ...]) -> None:
    case = Case(stages)
    with torch.no_grad():
        with case.prune():
            cache = case.fill()
        before = copy.deepcopy(vars(cache.layers[0])["recurrent_states"])
        for each in (cache, copy.deepcopy(cache)):
            with pytest.raises(tc.InputError, match="only a model pruned by the same method"):
                case.go_on(each, WORDS)
        assert torch.equal(cache.layers[0].recurrent_states[0], before[0])
        with (
            case.prune(KeepRandom(BUDGET, (2,))),
            pytest.raises(tc.InputError, match="Continue with"),
        ):
            case.go_on(cache, WORDS)
        cache.reset()
        plain = case.model(**case.inputs).logits
        close(case.model(**case.inputs, past_key_values=cache).logits, plain)


def test_rows_that_keep_different_numbers_do_not_go_on_from_a_cache() -> None:
    """Filling up the shorter row would stand between its cached and its new tokens."""
    case = Case((1,), "ragged")
    with torch.no_grad(), case.prune():
        cache = DynamicCache(config=case.model.config.get_text_config())
        words = torch.arange(30, 36).expand(3, -1)
        case.model(input_ids=words, past_key_values=cache)
        mask = torch.cat([torch.ones_like(words), case.mask], 1)
        inputs = {**case.inputs, "attention_mask": mask}
        with pytest.raises(tc.InputError, match="keep different numbers of tokens"):
            case.model(**inputs, past_key_values=cache)


@pytest.mark.parametrize("entry", HYBRIDS)
def test_keeping_all_equals_the_unpruned_model_and_nothing_stays(entry: ZooEntry) -> None:
    model, inputs = built(entry.name), entry.inputs("ragged")
    real, prompt = inputs["attention_mask"].bool(), entry.user_words(inputs)
    names = {name: set(vars(module)) for name, module in model.named_modules()}
    with torch.no_grad():
        plain = model(**inputs).logits
        with always_gather(), tc.prune(model, KeepRandom(None, (0, 3)), prompt=prompt):
            gathered = model(**inputs).logits
        assert torch.equal(model(**inputs).logits, plain)
    close(gathered[real], plain[real])
    assert names == {name: set(vars(module)) for name, module in model.named_modules()}


def test_attention_is_read_where_there_is_some() -> None:
    case = Case((3,), "ragged")
    eager = built(ENTRY.name, "eager")
    with torch.no_grad(), case.prune(tc.FastV(BUDGET, after=3)) as run:
        case.model(**case.inputs)
    with torch.no_grad():
        maps = eager(**case.inputs, use_cache=False, output_attentions=True).attentions
    assert len(maps) == 2
    for trace in run.trace:
        visual = ENTRY.visual(case.inputs)[trace.sample].nonzero().squeeze(-1)
        row = maps[0][trace.sample, :, -1].mean(0)[visual]
        best = sorted(range(len(row)), key=lambda token: (-float(row[token]), token))[:BUDGET]
        assert trace.kept.tolist() == sorted(best)


def test_the_attention_of_the_block_about_to_run_leaves_gates_out() -> None:
    case = Case((2,), "ragged")
    seen: list[Tensor] = []

    class Ask(KeepRandom):
        def watched_layers(self, num_layers: int) -> tuple[int, ...]:
            return (2,)

        def choose(self, view: tc.View) -> tc.Choice:
            seen.append(view.attention(2, view.last.unsqueeze(-1)))
            return super().choose(view)

    with torch.no_grad(), case.prune(Ask(BUDGET, (2,))):
        case.model(**case.inputs)
    eager = built(ENTRY.name, "eager")
    with torch.no_grad():
        maps = eager(**case.inputs, use_cache=False, output_attentions=True).attentions[0]
    for row, visual in enumerate(ENTRY.visual(case.inputs)):
        count = int(visual.sum())
        close(seen[0][row, :, 0, :count], maps[row, :, -1][:, visual])


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (tc.FastV(7, after=2), r"layer 1, which has none.*Read layer 2 or 4 by pruning elsewhere"),
        (tc.PyramidDrop(7, positions="original"), "which has none"),
    ],
)
def test_reading_attention_where_there_is_none_is_refused(method: Any, message: str) -> None:
    with pytest.raises(tc.InputError, match=message):
        tc.prune(built(ENTRY.name), method)


@pytest.mark.parametrize("stages", [(0,), (1, 3)])
@pytest.mark.parametrize("name", ["lfm2_vl", "minicpmv4_7"])
def test_other_decoders_with_states(name: str, stages: tuple[int, ...]) -> None:
    entry, model = ZOO[name], built(name)
    inputs = entry.inputs("ragged")
    method = KeepRandom(BUDGET, stages)
    with tc.prune(model, method, prompt=entry.user_words(inputs)):
        cached = generate(model, inputs, **GREEDY, num_beams=2)
        again = generate(model, inputs, **GREEDY, num_beams=2, use_cache=False)
    assert torch.equal(cached, again)


def test_kept_tokens_of_convolutions_are_numbered_anew() -> None:
    """Positions without gaps: as if the dropped tokens had never been in the prompt."""
    entry, model = ZOO["lfm2_vl"], built("lfm2_vl")
    inputs = entry.inputs("ragged")
    method = KeepRandom(BUDGET, (0,), positions="reindex")
    gone = dropped_by(method, inputs, entry.visual(inputs))
    with torch.no_grad(), tc.prune(model, method, prompt=entry.user_words(inputs)):
        found = model(**inputs).logits
    decoder: Any = model.get_submodule("model.language_model")
    embedded, *_ = record_layers(model, inputs)
    for row, left in enumerate(left_over(inputs, gone)):
        with torch.no_grad():
            states = decoder(inputs_embeds=embedded[row : row + 1, left]).last_hidden_state
            close(found[row, left], model.get_submodule("lm_head")(states)[0])
