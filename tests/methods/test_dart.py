"""DART: pivots by key norm, then the tokens least similar to them, checked against slow loops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import tokencover as tc
from tests.methods.test_mob import states_before
from tests.methods.views import hand_made
from tests.pruning.test_matrix import built
from tests.zoo import ZOO
from tests.zoo.oracle import text_model
from tokencover.errors import InputError
from tokencover.methods.dart import DART, measure_keys
from tokencover.methods.view import View

BEFORE = 2


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def a_view(sizes: list[int], words: list[int], seed: int = 0) -> View:
    """Random states and keys; the norm doubles the first half of the coordinates."""
    make = seeded(seed)
    scale = torch.tensor([2.0] * 4 + [1.0] * 4)
    return hand_made(
        [torch.randn(size, 8, generator=make) for size in sizes],
        before=BEFORE,
        behind=words,
        words=[torch.randn(count, 8, generator=make) for count in words],
        block=2,
        keys={
            1: [
                torch.randn(2, BEFORE + size + count, 3, generator=make)
                for size, count in zip(sizes, words, strict=True)
            ]
        },
        norm=lambda tokens: tokens * scale,
    )


def cos(a: Tensor, b: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(a.double(), b.double(), dim=0))


def expected(view: View, sample: int, shares_of: Any, image: int = 4, text: int = 4) -> list[int]:
    """The card's procedure for one sample, token by token."""
    n, t = int(view.mask[sample].sum()), int(view.text_mask[sample].sum())
    keys = view.keys(1, rotated=True)[sample]
    text_keys = view.keys(1, view.text_positions, rotated=True)[sample]
    norm = [float(keys[:, i].abs().sum()) for i in range(n)]
    text_norm = [float(text_keys[:, i].abs().sum()) for i in range(t)]
    own = sorted(range(n), key=lambda i: (-norm[i], i))[:image]
    words = sorted(range(t), key=lambda i: (-text_norm[i], i))[:text]
    visual = [view.norm(view.hidden_states[sample, i]) for i in range(n)]
    pivots = [visual[i] for i in own] + [view.norm(view.text[sample, i]) for i in words]
    free = [i for i in range(n) if i not in own]
    kept = list(own)
    for pivot, share in zip(pivots, shares_of(len(own), len(words)), strict=True):
        picks = sorted(free, key=lambda i: (cos(visual[i], pivot), i))[:share]
        kept += picks
        free = [i for i in free if i not in picks]
    return sorted(kept)


def exact_shares(budget: int) -> Any:
    def shares(own: int, words: int) -> list[int]:
        left = [0] * (own + words)
        for token in range(budget - own):
            left[token % len(left)] += 1
        return left

    return shares


@pytest.mark.parametrize("budget", [4, 5, 11, 12, 13, 19])
def test_it_keeps_what_the_slow_loop_keeps(budget: int) -> None:
    view = a_view([30, 22, 41], [6, 9, 5], seed=budget)
    choice = DART(budget).choose(view)
    for sample, kept in enumerate(choice.kept):
        assert sorted(kept.tolist()) == expected(view, sample, exact_shares(budget))
        assert len(set(kept.tolist())) == budget


@pytest.mark.parametrize("budget", [2, 8, 13, 19])
def test_the_published_count(budget: int) -> None:
    view = a_view([30, 41], [6, 9], seed=budget)
    choice = DART(budget, count="published").choose(view)
    each = budget // 8
    for sample, kept in enumerate(choice.kept):
        assert sorted(kept.tolist()) == expected(view, sample, lambda own, words: [each] * 8)
        assert len(kept) == 4 + 8 * each


@pytest.mark.parametrize(("budget", "count"), [(192, 196), (128, 132), (64, 68)])
def test_the_counts_of_the_released_code(budget: int, count: int) -> None:
    view = a_view([576], [20])
    assert len(DART(budget, count="published").choose(view).kept[0]) == count
    assert len(DART(budget).choose(view).kept[0]) == budget


def test_other_numbers_of_pivots() -> None:
    view = a_view([30, 22], [6, 9])
    choice = DART(12, image_pivots=3, text_pivots=2).choose(view)
    for sample, kept in enumerate(choice.kept):
        assert sorted(kept.tolist()) == expected(view, sample, exact_shares(12), image=3, text=2)


@pytest.mark.parametrize("count", ["exact", "published"])
def test_a_batch_is_its_samples_alone(count: Any) -> None:
    sizes, words = [30, 9, 41], [6, 1, 5]
    view = a_view(sizes, words)
    together = DART(0.4, count=count).choose(view)
    for sample, (size, word_count) in enumerate(zip(sizes, words, strict=True)):
        alone = hand_made(
            [view.hidden_states[sample, :size]],
            before=BEFORE,
            behind=word_count,
            words=[view.text[sample, :word_count]],
            keys={1: [all_keys(view, sample, size, word_count)]},
            norm=view.norm,
        )
        assert DART(0.4, count=count).choose(alone).kept[0].tolist() == (
            together.kept[sample].tolist()
        )


def all_keys(view: View, sample: int, size: int, words: int) -> Tensor:
    """The keys of one sample from its view."""
    before = torch.zeros(2, BEFORE, 3)
    visual = view.keys(1, rotated=True)[sample, :, :size]
    text = view.keys(1, view.text_positions, rotated=True)[sample, :, :words]
    return torch.cat([before, visual, text], dim=1)


def test_few_text_tokens_give_few_pivots() -> None:
    view = a_view([20, 20], [1, 2])
    choice = DART(9).choose(view)
    assert [len(kept) for kept in choice.kept] == [9, 9]
    assert [detail["text_pivots"] for detail in choice.details] == [1, 2]
    for sample, kept in enumerate(choice.kept):
        assert sorted(kept.tolist()) == expected(view, sample, exact_shares(9))


def test_no_text_pivots_ignores_text() -> None:
    view = a_view([20], [6])
    choice = DART(9, text_pivots=0).choose(view)
    assert sorted(choice.kept[0].tolist()) == expected(view, 0, exact_shares(9), text=0)


@pytest.mark.parametrize("budget", [1, 2, 3])
def test_budget_below_pivots_keeps_largest_norms(budget: int) -> None:
    view = a_view([20], [6])
    norm = view.keys(1, rotated=True)[0].abs().sum((0, 2))
    largest = norm.argsort(descending=True)[:budget]
    assert DART(budget).choose(view).kept[0].tolist() == largest.tolist()


@pytest.mark.parametrize("count", ["exact", "published"])
@pytest.mark.parametrize("size", [1, 3, 4, 7, 12])
def test_a_budget_above_all_tokens_keeps_all(size: int, count: Any) -> None:
    kept = DART(100, count=count).choose(a_view([size], [3])).kept[0]
    assert sorted(kept.tolist()) == list(range(size))


def test_published_shares_end_when_tokens_run_out() -> None:
    kept = DART(10, count="published", text_pivots=1).choose(a_view([11], [1])).kept[0]
    assert sorted(kept.tolist()) == list(range(11))


def test_equal_tokens_are_taken_by_lowest_index() -> None:
    view = hand_made(
        [torch.ones(9, 4)],
        before=0,
        behind=2,
        words=[torch.ones(2, 4)],
        keys={1: [torch.ones(1, 11, 2)]},
    )
    choice = DART(7).choose(view)
    assert choice.kept[0].tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_shared_keys_count_once() -> None:
    keys = torch.randn(2, 3, 5, 4, generator=seeded(1))
    repeated = keys.repeat_interleave(2, dim=1)
    torch.testing.assert_close(measure_keys(repeated), 2 * measure_keys(keys))


def test_choose_requests_rotated_keys_of_last_layer() -> None:
    view = a_view([20], [6])
    asked: list[tuple[int, bool]] = []

    def keys(block: int, places: Tensor | None = None, *, rotated: bool = False) -> Tensor:
        asked.append((block, rotated))
        return view.keys(1, places, rotated=rotated)

    method = DART(9, after=3)
    method.choose(replace(view, keys=keys))
    assert method.watched_layers(5) == (2,)
    assert method.pruning_layers(5) == (3,)
    assert asked == [(2, True), (2, True)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"after": 0}, "after=0"),
        ({"after": -1}, "got -1"),
        ({"image_pivots": 0}, "image_pivots must be at least 1, got 0"),
        ({"text_pivots": -1}, "text_pivots must be at least 0, got -1"),
        ({"text_pivots": 2.5}, "must be an integer, got 2.5"),
        ({"count": "nominal"}, "'nominal'"),
        ({"count": "published", "budget_mode": "flops"}, "budget_mode='flops'"),
        ({"count": "published", "budget_mode": "layer_mean"}, "use count='exact'"),
    ],
)
def test_invalid_settings_raise(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DART(8, **arguments)


def test_a_mean_budget_is_met() -> None:
    view = a_view([40], [6])  # 4 blocks, 2 of them work on all 40
    assert len(DART(24, budget_mode="layer_mean").choose(view).kept[0]) == 8


def test_nan_hidden_states_raise() -> None:
    view = a_view([20], [6])
    view.hidden_states[0, 3] = torch.nan
    with pytest.raises(tc.InputError, match="visual holds nan at"):
        DART(9).choose(view)


@pytest.mark.parametrize("name", ["llava", "qwen2_vl", "internvl"])
def test_model_keys_equal_cached_keys(name: str) -> None:
    """The cache of an unpruned run holds rotated keys."""
    entry, model = ZOO[name], built(name)
    inputs = entry.inputs("ragged")
    words, states = entry.user_words(inputs), states_before(entry, inputs, 2)
    norm = text_model(model).get_submodule("norm")
    with torch.no_grad():
        keys = model(**inputs, use_cache=True).past_key_values.layers[1].keys
        with tc.prune(model, DART(7, image_pivots=2, text_pivots=2), prompt=words) as run:
            model(**inputs)
        for trace in run.trace:
            row = trace.sample
            visual = entry.visual(inputs)[row]
            text = inputs["attention_mask"][row].bool() & ~visual & (visual.cumsum(0) > 0)
            order = torch.cat([mask.nonzero().squeeze(-1) for mask in (visual, text)])
            view = hand_made(
                [states[row, visual]],
                before=0,
                behind=int(text.sum()),
                words=[states[row, text]],
                keys={1: [keys[row][:, order]]},
                norm=norm,
            )
            assert trace.kept.tolist() == expected(view, 0, exact_shares(7), image=2, text=2)
            assert trace.details["text_pivots"] == 2
