"""Every family, place, padding side and attention implementation, by value."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from tests.pruning.gathering import always_gather
from tests.pruning.random_method import KeepRandom, dropped_by
from tests.zoo import ZOO
from tests.zoo.entry import SIDES, Inputs, Side, ZooEntry
from tests.zoo.oracle import best_words, blocked_forward_schedule, recompute_decode
from tokencover.pruning.prune import prune

ALL = [pytest.param(entry, id=entry.name) for entry in ZOO.values()]
DISTINCT = [pytest.param(entry, id=entry.name) for entry in ZOO.values() if entry.alike is None]
"""Entries whose blocks are not called like another one's."""
STAGES = [(0,), (4,), (0, 2), (1, 3)]
PLACES = [
    pytest.param(entry, block, id=f"{entry.name}-{block}")
    for entry in ZOO.values()
    for block in ((0, 4) if entry.alike is None else (1,))
]
"""An entry whose blocks are called like another one's is pruned at fewer places."""
KEEPING = [
    pytest.param(entry, stages, id=f"{entry.name}-{stages}")
    for entry in ZOO.values()
    for stages in ((0,), (1,), (0, 2))
    if entry.alike is None or len(stages) > 1
]
IN_STAGES = [
    pytest.param(entry, stages, side, attention, id=f"{entry.name}-{stages}-{side}-{attention}")
    for entry in ZOO.values()
    for stages in STAGES
    for side, attention in (("left", "sdpa"), ("right", "sdpa"), ("right", "eager"))
    if side == "left" or stages == (1, 3)
    if entry.alike is None or (stages in ((0,), (1, 3)) and attention == "sdpa")
]
"""The side of padding and eager attention change the masks, whatever the place: one tells it."""
PADDED = [
    pytest.param(entry, side, id=f"{entry.name}-{side}")
    for entry in ZOO.values()
    for side in SIDES
    if entry.alike is None or side == "left"
]
BUDGET = 7
NEVER = 10**6  # no token ends the text


@cache
def built(name: str, attention: str = "sdpa") -> PreTrainedModel:
    return ZOO[name].build(attention)


@cache
def plain_logits(name: str, kind: str) -> Tensor:
    """Of the unpruned model, without a cache."""
    model, inputs = built(name), ZOO[name].inputs(kind, "left")
    with torch.no_grad():
        found: Tensor = model(**inputs, use_cache=False).logits
    return found


def generate(model: PreTrainedModel, inputs: Inputs, **options: Any) -> Any:
    run: Any = model.generate
    return run(**inputs, **options)


def logits(model: PreTrainedModel, inputs: Inputs, method: KeepRandom, prompt: Tensor) -> Tensor:
    with torch.no_grad(), prune(model, method, prompt=prompt):
        found: Tensor = model(**inputs, use_cache=False).logits
    return found


def left_over(inputs: Inputs, gone: dict[int, Tensor]) -> Tensor:
    """Positions whose logits mean something."""
    left = inputs["attention_mask"].bool()
    for dropped in gone.values():
        left = left & ~dropped
    return left


def with_media(entry: ZooEntry) -> list[str]:
    return [kind for kind in entry.telling_kinds if kind != "text_only"]


@pytest.mark.parametrize(("entry", "stages", "side", "attention"), IN_STAGES)
def test_dropping_equals_blocking(
    entry: ZooEntry, stages: tuple[int, ...], side: Side, attention: str
) -> None:
    model = built(entry.name, attention)
    for kind in with_media(entry):
        inputs = entry.inputs(kind, side)
        method = KeepRandom(BUDGET, stages)
        gone = dropped_by(method, inputs, entry.visual(inputs))
        found = logits(model, inputs, method, entry.user_words(inputs))
        expected = blocked_forward_schedule(model, inputs, gone)
        left = left_over(inputs, gone)
        assert found.shape == expected.shape
        torch.testing.assert_close(found[left], expected[left], atol=1e-5, rtol=0)


@pytest.mark.parametrize(("entry", "block"), PLACES)
def test_cached_decoding_equals_recomputation(entry: ZooEntry, block: int) -> None:
    model = built(entry.name)
    for kind in with_media(entry):
        inputs = entry.inputs(kind, "left")
        method = KeepRandom(BUDGET, (block,))
        dropped = dropped_by(method, inputs, entry.visual(inputs))[block]
        with prune(model, method, prompt=entry.user_words(inputs)):
            found = generate(
                model, inputs, max_new_tokens=5, do_sample=False, eos_token_id=NEVER,
                output_logits=True, return_dict_in_generate=True,
            )  # fmt: skip
        words = found.sequences[:, inputs["input_ids"].shape[1] :]
        steps = torch.stack(found.logits, 1)
        expected = recompute_decode(model, inputs, words[:, :-1], dropped, block)
        assert torch.equal(words, best_words(model, expected))
        torch.testing.assert_close(steps, expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize(("entry", "stages"), KEEPING)
def test_keeping_all_equals_the_unpruned_model_both_ways(
    entry: ZooEntry, stages: tuple[int, ...]
) -> None:
    model = built(entry.name)
    for kind in with_media(entry):
        inputs = entry.inputs(kind, "left")
        real = inputs["attention_mask"].bool()
        plain = plain_logits(entry.name, kind)
        method = KeepRandom(None, stages)
        assert torch.equal(logits(model, inputs, method, entry.user_words(inputs)), plain)
        with (
            always_gather(),
            torch.no_grad(),
            prune(model, method, prompt=entry.user_words(inputs)),
        ):
            gathered = model(**inputs, use_cache=False).logits
        torch.testing.assert_close(gathered[real], plain[real], atol=1e-5, rtol=0)


IN_TWO_STAGES = KeepRandom(BUDGET, (1, 3))


@cache
def single_runs(name: str, kind: str) -> list[Tensor]:
    """Logits of the tokens that are left, each sample alone."""
    entry, model, found = ZOO[name], built(name), []
    for sample in entry.samples(kind):
        alone = entry.collate([sample])
        single = logits(model, alone, IN_TWO_STAGES, entry.user_words(alone))
        kept = left_over(alone, dropped_by(IN_TWO_STAGES, alone, entry.visual(alone)))
        found.append(single[kept])
    return found


@pytest.mark.parametrize(("entry", "side"), PADDED)
def test_a_batch_equals_the_single_runs(entry: ZooEntry, side: Side) -> None:
    model = built(entry.name)
    method = IN_TWO_STAGES
    for kind in filter(entry.equals_single_runs, with_media(entry)):
        batch = entry.inputs(kind, side)
        together = logits(model, batch, method, entry.user_words(batch))
        gone = dropped_by(method, batch, entry.visual(batch))
        left = left_over(batch, gone)
        for row, single in enumerate(single_runs(entry.name, kind)):
            torch.testing.assert_close(together[row, left[row]], single, atol=1e-5, rtol=0)


@pytest.mark.parametrize("entry", ALL)
def test_text_alone_is_untouched(entry: ZooEntry) -> None:
    model = built(entry.name)
    inputs = entry.inputs("text_only", "left")
    with torch.no_grad():
        plain = model(**inputs).logits
        with prune(model, KeepRandom(BUDGET), prompt=entry.user_words(inputs)) as run:
            assert torch.equal(model(**inputs).logits, plain)
    assert run.trace == []


@pytest.mark.parametrize("entry", ALL)
def test_exactly_the_budget_is_kept_and_traced(entry: ZooEntry) -> None:
    model = built(entry.name)
    for kind in with_media(entry):
        inputs = entry.inputs(kind, "left")
        visual = entry.visual(inputs)
        with (
            torch.no_grad(),
            prune(model, KeepRandom(BUDGET, (1, 3)), prompt=entry.user_words(inputs)) as run,
        ):
            model(**inputs)
        rows = [row for row in range(len(visual)) if visual[row].any()]
        assert [trace.sample for trace in run.trace] == rows
        for trace in run.trace:
            total = int(visual[trace.sample].sum())
            assert trace.visual_tokens == total
            assert trace.tokens_per_layer == [total, BUDGET, BUDGET, BUDGET - 2, BUDGET - 2]
            assert len(trace.kept) == BUDGET - 2
            assert trace.kept.tolist() == sorted(set(trace.kept.tolist()))
            assert len(trace.row) == len(trace.column) == len(trace.medium) == BUDGET - 2
