"""TokenCarve: ranks, pruning and merging, checked against slow loops and a plain SVD."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.methods.test_mob import states_before
from tests.methods.views import hand_made
from tests.pruning.test_matrix import built
from tests.zoo import ZOO
from tokencover.errors import InputError
from tokencover.methods.tokencarve import TokenCarve, measure_information, rank_scores
from tokencover.methods.view import View
from tokencover.pruning import prune

BEFORE, AFTER = 2, 3


def random_tokens(*sizes: int, seed: int = 0, width: int = 12) -> list[Tensor]:
    make = torch.Generator().manual_seed(seed)
    return [torch.randn(size, width, generator=make) for size in sizes]


def random_maps(sizes: Sequence[int], seed: int = 1) -> list[Tensor]:
    make = torch.Generator().manual_seed(seed)
    lengths = [BEFORE + size + AFTER for size in sizes]
    return [torch.rand(4, length, length, generator=make) for length in lengths]


def a_view(samples: Sequence[Tensor], maps: Sequence[Tensor]) -> View:
    return hand_made(samples, before=BEFORE, behind=AFTER, block=2, attention={1: maps})


def by_svd(tokens: Tensor) -> list[float]:
    left, values, _ = torch.linalg.svd(tokens.double(), full_matrices=False)
    return [
        sum(abs(float(left[i, j])) * float(values[j]) for j in range(len(values)))
        for i in range(len(tokens))
    ]


def rank_weights(scores: Sequence[float]) -> list[int]:
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    return [len(scores) - order.index(i) for i in range(len(scores))]


def cos(a: Tensor, b: Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(a.double(), b.double(), dim=0))


def expected(
    tokens: Tensor, attention: Tensor, budget: int, weight: float = 0.5
) -> dict[int, Tensor]:
    """The card's procedure: each kept token and its state."""
    n, budget = len(tokens), min(budget, len(tokens))
    row = attention[:, -1, BEFORE : BEFORE + n].mean(0).tolist()
    by_attention, by_value = rank_weights(row), rank_weights(by_svd(tokens))
    score = [weight * a + (1 - weight) * v for a, v in zip(by_attention, by_value, strict=True)]
    stage = sorted(range(n), key=lambda i: (-score[i], i))[: min(n, int(1.5 * budget))]
    better, worse = stage[: len(stage) // 2], stage[len(stage) // 2 :]
    partner = {b: max(better, key=lambda a: cos(tokens[a], tokens[b])) for b in worse if better}
    closest = sorted(partner, key=lambda b: -cos(tokens[partner[b]], tokens[b]))
    merged = closest[: len(stage) - budget]
    kept = {}
    for token in stage:
        if token not in merged:
            members = [token] + [b for b in merged if partner[b] == token]
            kept[token] = torch.stack([tokens[each] for each in members]).mean(0)
    return kept


def assert_same(method: TokenCarve, samples: Sequence[Tensor], maps: Sequence[Tensor]) -> None:
    choice = method.choose(a_view(samples, maps))
    assert choice.hidden_states is not None
    for sample, (tokens, attention) in enumerate(zip(samples, maps, strict=True)):
        wanted = expected(tokens, attention, int(method.budget), method.attention_weight)
        kept = choice.kept[sample].tolist()
        assert sorted(kept) == sorted(wanted)
        assert len(kept) == len(set(kept)) == min(method.budget, len(tokens))
        for token, state in wanted.items():
            torch.testing.assert_close(choice.hidden_states[sample, token], state)


@pytest.mark.parametrize("budget", [1, 2, 3, 4, 7, 10, 15, 20])
@pytest.mark.parametrize("width", [8, 64])
def test_choice_equals_reference_loop(budget: int, width: int) -> None:
    sizes = (20, 13, 31)
    samples = random_tokens(*sizes, seed=budget, width=width)
    assert_same(TokenCarve(budget), samples, random_maps(sizes))


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_ranks_are_weighted(weight: float) -> None:
    sizes = (20, 31)
    samples = random_tokens(*sizes)
    assert_same(TokenCarve(8, attention_weight=weight), samples, random_maps(sizes))


@pytest.mark.parametrize(("budget", "merged"), [(192, 96), (128, 64), (64, 32)])
def test_the_counts_of_the_released_code(budget: int, merged: int) -> None:
    view = a_view(random_tokens(576, width=16), random_maps([576]))
    choice = TokenCarve(budget).choose(view)
    assert len(choice.kept[0]) == budget
    assert choice.details[0]["merged"] == merged


@pytest.mark.parametrize(("size", "width"), [(20, 7), (7, 20), (12, 12), (1, 5), (5, 1)])
def test_information_is_that_of_the_svd(size: int, width: int) -> None:
    (tokens,) = random_tokens(size, width=width)
    torch.testing.assert_close(
        measure_information(tokens).double(),
        torch.tensor(by_svd(tokens)).double(),
        rtol=1e-6,
        atol=0.0,
    )


@pytest.mark.parametrize("width", [5, 200])
def test_information_of_dependent_tokens_has_no_noise(width: int) -> None:
    """One direction: the contribution is the length, whatever the empty directions are."""
    direction = torch.ones(width) / width**0.5
    lengths = torch.arange(1.0, 41.0)
    found = measure_information(lengths[:, None] * direction)
    torch.testing.assert_close(found, lengths, rtol=1e-6, atol=0.0)


def test_nothing_informs_if_all_is_zero() -> None:
    assert measure_information(torch.zeros(4, 9)).tolist() == [0, 0, 0, 0]


def test_ranks_fall_and_equals_keep_their_order() -> None:
    assert rank_scores(torch.tensor([0.5, 2.0, 0.5, 1.0])).tolist() == [2, 4, 1, 3]


def test_a_batch_is_its_samples_alone() -> None:
    sizes = (20, 7, 31)
    samples, maps = random_tokens(*sizes), random_maps(sizes)
    together = TokenCarve(0.4).choose(a_view(samples, maps))
    for sample, (tokens, attention) in enumerate(zip(samples, maps, strict=True)):
        alone = TokenCarve(0.4).choose(a_view([tokens], [attention]))
        assert alone.kept[0].tolist() == together.kept[sample].tolist()
        assert alone.hidden_states is not None
        assert together.hidden_states is not None
        assert torch.equal(alone.hidden_states[0], together.hidden_states[sample, : len(tokens)])


def test_equal_tokens_merge_into_the_best() -> None:
    choice = TokenCarve(4).choose(a_view([torch.ones(9, 4)], [torch.ones(1, 14, 14)]))
    assert sorted(choice.kept[0].tolist()) == [0, 1, 2, 5]
    assert choice.hidden_states is not None
    assert torch.equal(choice.hidden_states[0], torch.ones(9, 4))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_budget_above_all_tokens_changes_nothing(size: int) -> None:
    samples = random_tokens(size)
    choice = TokenCarve(9).choose(a_view(samples, random_maps([size])))
    assert sorted(choice.kept[0].tolist()) == list(range(size))
    assert choice.hidden_states is not None
    assert torch.equal(choice.hidden_states[0], samples[0])


def test_gradients_reach_all_that_was_merged() -> None:
    (tokens,), maps = random_tokens(20), random_maps([20])
    tokens.requires_grad_()
    choice = TokenCarve(8).choose(a_view([tokens], maps))
    assert choice.hidden_states is not None
    kept = choice.kept[0]
    choice.hidden_states[0, kept].sum().backward()
    assert tokens.grad is not None
    # A mean of m tokens hands a gradient of 1 on in m equal parts, so all parts add up to it.
    torch.testing.assert_close(tokens.grad.sum(0), torch.full((12,), 8.0))
    assert int((tokens.grad != 0).any(-1).sum()) == 12


def test_merging_stays_in_full_precision_under_autocast() -> None:
    samples, maps = random_tokens(20), random_maps([20])
    plain = TokenCarve(8).choose(a_view(samples, maps)).hidden_states
    with torch.autocast("cpu", torch.bfloat16):
        mixed = TokenCarve(8).choose(a_view(samples, maps)).hidden_states
    assert plain is not None
    assert mixed is not None
    assert torch.equal(plain, mixed)


def test_where_it_acts() -> None:
    method = TokenCarve(8, after=3)
    assert method.pruning_layers(5) == (3,)
    assert method.watched_layers(5) == (2,)
    assert method.merges
    assert method.positions == "original"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"after": 0}, "after=0"),
        ({"after": -1}, "got -1"),
        ({"attention_weight": 1.5}, "got 1.5"),
        ({"attention_weight": -0.1}, "got -0.1"),
    ],
)
def test_invalid_settings_raise(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TokenCarve(8, **arguments)


def test_nan_hidden_states_raise() -> None:
    (tokens,) = random_tokens(20)
    tokens[3, 0] = torch.nan
    with pytest.raises(InputError, match="visual holds nan at"):
        TokenCarve(8).choose(a_view([tokens], random_maps([20])))


@pytest.mark.parametrize("name", ["llava", "qwen2_vl"])
def test_model_attention_equals_eager_attention(name: str) -> None:
    entry = ZOO[name]
    inputs = entry.inputs("ragged")
    states, model = states_before(entry, inputs, 2), built(name)
    eager = entry.build(attn_implementation="eager")
    with torch.no_grad():
        maps = eager(**inputs, output_attentions=True).attentions[1]
        with prune(model, TokenCarve(6), prompt=entry.user_words(inputs)) as run:
            model(**inputs)
    for trace in run.trace:
        visual = entry.visual(inputs)[trace.sample]
        last = int(inputs["attention_mask"][trace.sample].nonzero()[-1])
        row = maps[trace.sample][:, last : last + 1, visual]
        padded = torch.nn.functional.pad(row, (BEFORE, AFTER))
        assert trace.kept.tolist() == sorted(expected(states[trace.sample, visual], padded, 6))
