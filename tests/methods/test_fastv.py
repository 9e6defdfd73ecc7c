"""FastV against a loop over heads, straight from the formula."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.methods.views import hand_made
from tests.zoo import ZOO
from tests.zoo.oracle import decoder_blocks
from tokencover import InputError
from tokencover.methods import View
from tokencover.methods.fastv import FastV
from tokencover.pruning import prune

SIZES, TAILS, BEFORE, HEADS = [11, 17, 6], [3, 2, 5], 2, 3


def attention_maps(seed: int) -> list[Tensor]:
    """For each sample ``(heads, s, s)``, causal; quarters, so that head means tie often."""
    generator = torch.Generator().manual_seed(seed)
    maps = []
    for size, tail in zip(SIZES, TAILS, strict=True):
        length = BEFORE + size + tail
        drawn = torch.randint(0, 4, (HEADS, length, length), generator=generator) / 4
        maps.append(drawn.tril())
    return maps


def batch(attention: dict[int, list[Tensor]], **changes: Any) -> View:
    states = [torch.zeros(size, 4) for size in SIZES]
    settings = {"block": 2, "depth": 8, **changes}
    return hand_made(states, before=BEFORE, behind=TAILS, attention=attention, **settings)


def slow(attention: Tensor, size: int, count: int) -> list[int]:
    """Mean over heads of the very last row, visual columns only."""
    last = attention.shape[-1] - 1
    scores = []
    for token in range(size):
        total = 0.0
        for head in range(HEADS):
            total += float(attention[head, last, BEFORE + token])
        scores.append(total / HEADS)
    return sorted(range(size), key=lambda token: (-scores[token], token))[:count]


@pytest.mark.parametrize("budget", [1, 2, 5, 6, 16, 400])
@pytest.mark.parametrize("seed", range(4))
def test_keeps_largest_attention_of_last_token(budget: int, seed: int) -> None:
    maps = attention_maps(seed)
    choice = FastV(budget).choose(batch({1: maps}))
    for found, each, size in zip(choice.kept, maps, SIZES, strict=True):
        assert found.tolist() == slow(each, size, min(budget, size))


def test_the_block_before_is_looked_at() -> None:
    maps = {number: attention_maps(number) for number in range(4)}
    for after in (1, 2, 4):
        method = FastV(4, after=after)
        assert list(method.watched_layers(8)) == [after - 1]
        assert list(method.pruning_layers(8)) == [after]
        choice = method.choose(batch(maps, block=after))
        for found, each, size in zip(choice.kept, maps[after - 1], SIZES, strict=True):
            assert found.tolist() == slow(each, size, 4)


def test_a_batch_equals_its_samples_alone() -> None:
    maps = attention_maps(9)
    together = FastV(0.5).choose(batch({1: maps}))
    for sample, (size, tail) in enumerate(zip(SIZES, TAILS, strict=True)):
        view = hand_made(
            [torch.zeros(size, 4)],
            before=BEFORE,
            behind=tail,
            attention={1: [maps[sample]]},
            block=2,
            depth=8,
        )
        alone = FastV(0.5).choose(view)
        assert alone.kept[0].tolist() == together.kept[sample].tolist()
        assert len(alone.kept[0]) == (size + 1) // 2


@pytest.mark.parametrize(("mode", "left"), [("exact", 5), ("layer_mean", 3)])
def test_the_budget_can_be_a_mean(mode: Any, left: int) -> None:
    maps = attention_maps(1)[:1]
    view = hand_made(
        [torch.zeros(11, 4)], before=BEFORE, behind=3, attention={1: maps}, block=2, depth=8
    )
    choice = FastV(5, budget_mode=mode).choose(view)  # (2 * 11 + 6 * 3) / 8 = 5
    assert choice.kept[0].tolist() == slow(maps[0], 11, left)


def test_the_means_of_the_paper() -> None:
    assert sum(FastV(0.5).schedule(288, 576, 32)) / 32 == 306.0
    assert sum(FastV(0.25).schedule(144, 576, 32)) / 32 == 171.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"after": 0}, "after=0 leaves FastV without attention"),
        ({"after": -1}, "got -1"),
        ({"after": "2"}, "got '2'"),
    ],
)
def test_invalid_settings_raise(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        FastV(64, **settings)


def test_too_few_layers_raises() -> None:
    with pytest.raises(InputError, match="after=2 is out of range"):
        FastV(64).pruning_layers(2)


def test_it_keeps_positions_and_newlines() -> None:
    assert FastV(64).positions == "original"
    assert not FastV(64).drops_newlines


@pytest.mark.parametrize("name", ["llava", "llava_next", "qwen2_vl"])
@pytest.mark.parametrize("kind", ["ragged", "two_images"])
def test_model_attention_equals_eager_attention(name: str, kind: str) -> None:
    entry = ZOO[name]
    inputs = entry.inputs(kind)
    maps = eager_maps(entry.build("eager"), inputs, block=1)
    newline, visual = entry.newline(inputs), entry.visual(inputs)
    choosable = visual if newline is None else visual & ~newline
    model = entry.build("sdpa")
    with torch.no_grad(), prune(model, FastV(5), prompt=entry.user_words(inputs)) as run:
        model(**inputs)
    assert len(run.trace) == len(visual)
    for trace in run.trace:
        scores = maps[trace.sample].mean(0)[-1]  # padding is on the left
        columns = choosable[trace.sample].nonzero().squeeze(-1).tolist()
        expected = sorted(columns, key=lambda column: (-float(scores[column]), column))[:5]
        places = visual[trace.sample].nonzero().squeeze(-1)[trace.kept]
        assert set(places.tolist()) & set(columns) == set(expected)


def eager_maps(model: Any, inputs: dict[str, Tensor], block: int) -> Tensor:
    """The attention ``(b, heads, s, s)`` of a decoder layer, nothing pruned."""
    seen = []
    attention: Any = decoder_blocks(model)[block].self_attn
    hook = attention.register_forward_hook(lambda module, args, output: seen.append(output[1]))
    with torch.no_grad():
        model(**inputs)
    hook.remove()
    found: Tensor = seen[0]
    return found
