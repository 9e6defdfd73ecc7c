"""Keys of any token, before and after their rotation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

import tokencover as tc
from tests.pruning.random_method import KeepRandom, dropped_by
from tests.pruning.test_matrix import DISTINCT, built
from tests.pruning.test_probe import (
    CLOSE,
    Watch,
    eavesdropping,
    first_dropped,
    keys_of,
    places,
    refused,
)
from tests.zoo import ZOO
from tests.zoo.entry import SIDES, Inputs, Side, ZooEntry
from tests.zoo.oracle import blocked_forward_schedule, decoder_blocks
from tokencover.methods import Choice, View
from tokencover.pruning.passes import pack_left


@dataclass(frozen=True)
class Told:
    """Keys of every token that was left when a block ran, seen from a later one."""

    block: int
    view: View
    left: Tensor
    plain: Tensor
    rotated: Tensor
    visual: Tensor


@dataclass(frozen=True)
class AskKeys(Watch):
    """Asks for the keys of all tokens that were left, and one that does not exist."""

    real: Tensor = field(default_factory=lambda: torch.empty(0))
    told: list[Told] = field(default_factory=list)

    def choose(self, view: View) -> Choice:
        for block in self.blocks_watched:
            if block < view.layer_idx:
                self.told.append(self._ask(view, block))
        return KeepRandom.choose(self, view)

    def _ask(self, view: View, block: int) -> Told:
        left = self.real.clone()
        if any(stage <= block for stage in self.stages):  # what is left now was left then
            visual = torch.zeros_like(left)
            rows = view.mask.nonzero()[:, 0]
            visual[rows, view.positions[view.mask]] = True
            gone = dropped_by(self, {}, self.asks[0])[self.stages[0]]
            assert torch.equal(visual, self.asks[0] & ~gone)
            left &= ~gone
        index, mask = pack_left(left)
        index = torch.cat([index.masked_fill(~mask, -1), index.new_full((len(index), 1), -1)], 1)
        return Told(
            block,
            view,
            index,
            view.keys(block, index),
            view.keys(block, index, rotated=True),
            view.keys(block, rotated=True),
        )


def asking(model: PreTrainedModel, entry: ZooEntry, inputs: Inputs, **options: Any) -> AskKeys:
    method = AskKeys(asks=[entry.visual(inputs)], real=inputs["attention_mask"].bool())
    with torch.no_grad(), tc.prune(model, method, prompt=entry.user_words(inputs)):
        model(**inputs, **options)
    assert [told.block for told in method.told] == [0, 0, 2]
    return method


@contextmanager
def tables_of(model: PreTrainedModel) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """The rotation tables that the first block gets."""
    found: list[tuple[Tensor, Tensor]] = []

    def came(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        found.append(kwargs["position_embeddings"])

    handle = decoder_blocks(model)[0].register_forward_pre_hook(came, with_kwargs=True)
    try:
        yield found
    finally:
        handle.remove()


def turned(keys: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate ``(b, s, heads, dims)``: dimension i and i + dims / 2 are a pair, by hand."""
    half = keys.shape[-1] // 2
    first, second = keys[..., :half], keys[..., half:]
    cosines, sines = cosines[..., None, :half], sines[..., None, :half]
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], -1)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("entry", DISTINCT)
def test_keys_are_those_of_the_plain_blocks_turned_by_hand(entry: ZooEntry, side: Side) -> None:
    eager, inputs = built(entry.name, "eager"), entry.inputs("ragged", side)
    method = asking(built(entry.name), entry, inputs)
    gone = dropped_by(method, inputs, entry.visual(inputs))
    with eavesdropping(eager) as truth, tables_of(eager) as tables:
        blocked_forward_schedule(eager, inputs, gone)
    for told in method.told:
        with torch.no_grad():
            plain = keys_of(decoder_blocks(eager)[told.block], truth[told.block].states)
        rotated = turned(plain, *tables[0])
        for row, index in enumerate(told.left):
            there, last = index[index >= 0], int((index >= 0).sum())
            for found, expected in ((told.plain, plain), (told.rotated, rotated)):
                wanted = expected[row, there].transpose(0, 1)
                torch.testing.assert_close(found[row, :, :last], wanted, **CLOSE)
                assert not found[row, :, last:].any()
            mask = told.view.mask[row]
            wanted = rotated[row, told.view.positions[row, mask]].transpose(0, 1)
            torch.testing.assert_close(told.visual[row][:, mask], wanted, **CLOSE)
            assert not told.visual[row][:, ~mask].any()
        assert (plain - rotated).abs().max() > 0.1


def cached_keys(cache: Any, block: int) -> Tensor:
    found: Tensor = cache.layers[block].keys
    return found


@pytest.mark.parametrize("entry", DISTINCT)
def test_rotated_keys_are_those_in_the_cache(entry: ZooEntry) -> None:
    """Kept rows of the cache are aligned to the right, in their order."""
    past = DynamicCache()
    inputs = entry.inputs("ragged", "left")
    method = asking(built(entry.name), entry, inputs, past_key_values=past, use_cache=True)
    for told in method.told:
        cached = cached_keys(past, told.block)
        for row, index in enumerate(told.left):
            last = int((index >= 0).sum())
            assert torch.equal(told.rotated[row, :, :last], cached[row, :, -last:])


def test_positions_without_gaps_turn_keys_otherwise() -> None:
    entry, found = ZOO["llava"], []
    inputs = entry.inputs("ragged")
    for positions in ("original", "reindex"):
        past = DynamicCache()
        told: list[Tensor] = []

        def ask(view: View, told: list[Tensor] = told) -> None:
            if view.layer_idx == 3:
                told.append(view.keys(2, view.last.unsqueeze(-1), rotated=True))

        method = Watch(ask=ask, positions=positions)
        with torch.no_grad(), tc.prune(built("llava"), method, prompt=entry.user_words(inputs)):
            built("llava")(**inputs, past_key_values=past, use_cache=True)
        assert torch.equal(told[0][:, :, 0], cached_keys(past, 2)[:, :, -1])
        found.append(told[0])
    assert (found[0] - found[1]).abs().max() > 0.1


def ask_for_dropped_keys(view: View) -> None:
    if view.layer_idx == 3:
        dropped = places([first_dropped(view)], [-1], [-1])
        assert view.keys(0, dropped)[0].any()
        view.keys(2, dropped)


def test_keys_that_do_not_exist_are_refused() -> None:
    last = ZOO["llava"].inputs("ragged")["input_ids"].shape[1] - 1
    assert "shape (1, 1)" in refused(lambda view: view.keys(0, places([last])))
    assert "float32" in refused(lambda view: view.keys(0, torch.ones(3, 1)))
    beyond = places([last + 1], [last], [last])
    assert f"to {last + 1}" in refused(lambda view: view.keys(0, beyond))
    assert "is padding" in refused(lambda view: view.keys(0, places([0], [0], [0])))
    assert "was dropped before layer 2" in refused(ask_for_dropped_keys)
