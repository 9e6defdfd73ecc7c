"""PyramidDrop: its schedule against the cards' numbers, its choice against a loop."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.methods.views import hand_made
from tests.zoo import ZOO
from tests.zoo.oracle import decoder_blocks
from tokencover import InputError
from tokencover.budget import LayerCost, tokens_left
from tokencover.methods import View
from tokencover.methods._shared.decoder import shrink_evenly
from tokencover.methods.pyramiddrop import PyramidDrop
from tokencover.pruning import prune

SIZES, TAILS, BEFORE, HEADS = [20, 33, 7], [3, 2, 5], 2, 3


def solved(mean: int, stages: tuple[int, ...], total: int = 576) -> int:
    method = PyramidDrop(mean, stages, budget_mode="layer_mean")
    return tokens_left(
        mean,
        "layer_mean",
        total=total,
        others=40,
        schedule=lambda left: method.schedule(left, total, 32),
        cost=LayerCost(1, 1),
    )


def test_half_of_the_tokens_at_every_stage() -> None:
    schedule = PyramidDrop(0.125).schedule(72, 576, 32)
    assert schedule == [576] * 8 + [288] * 8 + [144] * 8 + [72] * 8
    assert sum(schedule) / 32 == 270.0


@pytest.mark.parametrize(("mean", "share"), [(192, 0.561), (128, 0.421), (64, 0.193)])
def test_shares_for_the_usual_means(mean: int, share: float) -> None:
    left = solved(mean, (2, 8, 16))
    assert (left / 576) ** (1 / 3) == pytest.approx(share, abs=0.004)
    schedule = PyramidDrop(mean, (2, 8, 16)).schedule(left, 576, 32)
    # One token more or less at the end moves the mean by a few tokens when few are left.
    assert sum(schedule) / 32 == pytest.approx(mean, abs=2.0)


def test_late_stages_cannot_reach_a_small_mean() -> None:
    with pytest.raises(InputError, match="cannot be reached") as error:
        solved(144, (8, 16, 24))
    smallest = PyramidDrop(144).schedule(1, 576, 32)
    assert f"at least {math.ceil(sum(smallest) / 32)} are needed" in str(error.value)
    assert sum(smallest) / 32 > 144  # eight blocks of 576 alone


@given(st.integers(1, 5000), st.integers(1, 6), st.data())
def test_counts_are_floor_of_geometric_series(total: int, stages: int, data: st.DataObject) -> None:
    left = data.draw(st.integers(1, total))
    counts = shrink_evenly(total, Fraction(left, total), stages)
    share = (left / total) ** (1 / stages)
    for stage, count in enumerate(counts, start=1):
        real = total * share**stage
        assert count in {math.floor(real), math.floor(real * (1 + 1e-12)), math.floor(real - 1e-9)}
        # Exactly: count <= total**(1 - i/S) * left**(i/S) < count + 1.
        power = total ** (stages - stage) * left**stage
        assert count**stages <= power < (count + 1) ** stages
    assert counts[-1] == left
    assert list(counts) == sorted(counts, reverse=True)
    assert counts[0] <= total
    if left < total:
        more = shrink_evenly(total, Fraction(left + 1, total), stages)
        assert all(a <= b for a, b in zip(counts, more, strict=True))


@pytest.mark.parametrize(
    ("depth", "stages"),
    [
        (32, (8, 16, 24)),
        (40, (10, 20, 30)),
        (28, (7, 14, 21)),
        (5, (1, 2, 3)),
        (3, (1, 2)),
        (2, (1,)),
    ],
)
def test_stages_go_with_the_depth(depth: int, stages: tuple[int, ...]) -> None:
    method = PyramidDrop(4)
    assert tuple(method.pruning_layers(depth)) == tuple(method.watched_layers(depth)) == stages
    schedule = method.schedule(4, 50, depth)
    assert len(schedule) == depth
    assert schedule[0] == 50
    assert schedule[-1] == 4


def attention_maps(seed: int) -> list[Tensor]:
    """For each sample ``(heads, s, s)``, causal; quarters, so that head means tie often."""
    generator = torch.Generator().manual_seed(seed)
    maps = []
    for size, tail in zip(SIZES, TAILS, strict=True):
        length = BEFORE + size + tail
        drawn = torch.randint(0, 4, (HEADS, length, length), generator=generator) / 4
        maps.append(drawn.tril())
    return maps


def scores_of(attention: Tensor, size: int) -> list[float]:
    """Mean over heads of the very last row, visual columns only."""
    last = attention.shape[-1] - 1
    return [
        sum(float(attention[head, last, BEFORE + token]) for head in range(HEADS)) / HEADS
        for token in range(size)
    ]


def after_stage(view: View, kept: list[list[int]], scores: list[list[float]], block: int) -> View:
    """The view of a later stage: only kept tokens are left, with scores of their own."""
    sizes = [len(each) for each in kept]
    rows = torch.zeros(len(kept), HEADS, 1, max(sizes))
    for sample, index in enumerate(kept):
        rows[sample, :, 0, : len(index)] = torch.tensor([scores[sample][i] for i in index])

    def attention(number: int, queries: Tensor) -> Tensor:
        assert number == block
        assert queries.tolist() == view.last.unsqueeze(-1).tolist()
        return rows

    shorter = hand_made(
        [torch.zeros(size, 4) for size in sizes], block=block, depth=view.num_layers
    )
    return replace(
        shorter, attention=attention, total=view.total, others=view.others, last=view.last
    )


@pytest.mark.parametrize("budget", [1, 3, 6, 0.2, 400])
def test_stages_keep_largest_attention_of_last_token(budget: float) -> None:
    method = PyramidDrop(budget)
    maps = {block: attention_maps(block) for block in (8, 16, 24)}
    scores = {
        block: [scores_of(each, size) for each, size in zip(found, SIZES, strict=True)]
        for block, found in maps.items()
    }
    states = [torch.zeros(size, 4) for size in SIZES]
    view = hand_made(states, before=BEFORE, behind=TAILS, attention={8: maps[8]}, block=8, depth=32)
    kept = [list(range(size)) for size in SIZES]
    for stage, block in enumerate((8, 16, 24), start=1):
        found = method.choose(view)
        for sample, size in enumerate(SIZES):
            share = budget if isinstance(budget, float) else min(budget, size) / size
            count = max(1, int(size * share ** (stage / 3) + 1e-9))
            row = scores[block][sample]
            expected = sorted(kept[sample], key=lambda token: (-row[token], token))[:count]
            assert [kept[sample][i] for i in found.kept[sample].tolist()] == expected
            kept[sample] = sorted(expected)
        if block < 24:
            view = after_stage(view, kept, scores[block + 8], block + 8)


def test_a_batch_equals_its_samples_alone() -> None:
    maps = attention_maps(9)
    states = [torch.zeros(size, 4) for size in SIZES]
    view = hand_made(states, before=BEFORE, behind=TAILS, attention={8: maps}, block=8, depth=32)
    together = PyramidDrop(0.3).choose(view)
    for sample, tail in enumerate(TAILS):
        view = hand_made(
            [states[sample]],
            before=BEFORE,
            behind=tail,
            attention={8: [maps[sample]]},
            block=8,
            depth=32,
        )
        alone = PyramidDrop(0.3).choose(view)
        assert alone.kept[0].tolist() == together.kept[sample].tolist()


@pytest.mark.parametrize("stages", [(), (8, 8), (16, 8), (-1, 4), (1.0, 2), [8, 16], 8, (True, 2)])
def test_invalid_stages_raise(stages: Any) -> None:
    with pytest.raises(InputError, match="stages must be ascending"):
        PyramidDrop(64, stages)


def test_stages_beyond_last_layer_raise() -> None:
    with pytest.raises(InputError, match=r"\(8, 16, 24\) do not fit a model of 24 layers.*23"):
        PyramidDrop(64, (8, 16, 24)).pruning_layers(24)
    with pytest.raises(InputError, match="a model of 1 layers"):
        PyramidDrop(64).pruning_layers(1)


def test_one_pool_and_new_positions() -> None:
    assert PyramidDrop(64).positions == "reindex"
    assert PyramidDrop(64, positions="original").positions == "original"
    assert PyramidDrop(64).drops_newlines


def kept_by(model: Any, inputs: dict[str, Tensor], method: PyramidDrop) -> list[int]:
    with torch.no_grad(), prune(model, method, prompt=inputs["attention_mask"].bool()) as run:
        model(**inputs)
    found: list[int] = run.trace[0].kept.tolist()
    return found


@pytest.mark.parametrize("positions", ["original", "reindex"])
@pytest.mark.parametrize("name", ["llava", "llava_next"])
def test_on_a_model_the_next_block_decides(name: str, positions: Any) -> None:
    """Each stage keeps the top of the map that the next block forms when nothing is dropped."""
    entry = ZOO[name]
    inputs = entry.inputs("single")
    visual = entry.visual(inputs)[0].nonzero().squeeze(-1)
    total, begin = len(visual), int(visual[0])
    assert visual.tolist() == list(range(begin, begin + total))
    first, second = shrink_evenly(total, Fraction(5, total), 2)
    eager, sdpa = entry.build("eager"), entry.build("sdpa")
    left = list(range(total))
    stages: tuple[int, ...] = ()
    for block, count in ((1, first), (3, second)):
        # An eager run that stops pruning before this block forms its whole map.
        with eager_map(eager, block) as seen:
            if stages:
                kept_by(eager, inputs, PyramidDrop(len(left), stages, positions=positions))
            else:
                with torch.no_grad():
                    eager(**inputs)
        row = seen[0][0].mean(0)[-1, begin : begin + len(left)].tolist()
        order = sorted(range(len(left)), key=lambda place: (-row[place], place))
        left = sorted(left[place] for place in order[:count])
        stages = (*stages, block)
        method = PyramidDrop(count, stages, positions=positions)
        assert kept_by(sdpa, inputs, method) == left


@contextmanager
def eager_map(model: Any, block: int) -> Iterator[list[Tensor]]:
    """Collect the attention ``(b, heads, s, s)`` of a decoder layer."""
    seen: list[Tensor] = []
    attention: Any = decoder_blocks(model)[block].self_attn
    hook = attention.register_forward_hook(lambda module, args, output: seen.append(output[1]))
    yield seen
    hook.remove()


@pytest.mark.parametrize("total", [577, 605, 610, 1151, 2144, 2881])
def test_fractions_round_like_released_code(total: int) -> None:
    """``int(N * ratio)`` with ratios 0.5, 0.25 and 0.125 of the whole, whatever the length."""
    method = PyramidDrop(0.125)
    view = hand_made([torch.zeros(total, 2)], depth=32, block=8)
    (left,) = method.num_kept(view)
    schedule = method.schedule(left, total, 32)
    assert [schedule[block] for block in (8, 16, 24)] == [
        int(total * ratio) for ratio in (0.5, 0.25, 0.125)
    ]


@pytest.mark.parametrize("mean", [192, 128, 64])
def test_published_means_reachable(mean: int) -> None:
    """Its authors advise earlier stages for them."""
    method = PyramidDrop(mean, budget_mode="published")
    view = hand_made([torch.zeros(576, 2)], depth=32, block=2)
    (left,) = method.num_kept(view)
    assert sum(method.schedule(left, 576, 32)) / 32 == pytest.approx(mean, abs=2.0)
