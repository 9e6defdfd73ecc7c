"""DivPrune: the most isolated token, then farthest points, checked against slow loops."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.methods.test_mob import states_before
from tests.methods.views import hand_made
from tests.pruning.test_matrix import built
from tests.zoo import ZOO
from tokencover.covering import farthest_points, select_diverse, select_most_isolated
from tokencover.errors import InputError
from tokencover.methods.divprune import DivPrune
from tokencover.pruning import prune


def distances(tokens: Tensor) -> list[list[float]]:
    unit = tokens.double() / tokens.double().norm(dim=-1, keepdim=True)
    return [[1 - float(a @ b) for b in unit] for a in unit]


def expected(tokens: Tensor, budget: int) -> list[int]:
    """Greedy max-min diversity, straight from its definition."""
    distance, everything = distances(tokens), range(len(tokens))
    if budget >= len(tokens):
        return list(everything)
    nearest = [min(distance[i][j] for j in everything if j != i) for i in everything]
    kept = [max(everything, key=lambda i: nearest[i])]
    while len(kept) < budget:
        left = [i for i in everything if i not in kept]
        kept.append(max(left, key=lambda i: min(distance[i][j] for j in kept)))
    return sorted(kept)


def random_tokens(*sizes: int, seed: int = 0, width: int = 6) -> list[Tensor]:
    make = torch.Generator().manual_seed(seed)
    return [torch.randn(size, width, generator=make) for size in sizes]


@pytest.mark.parametrize("budget", [1, 2, 3, 8, 16])
def test_it_keeps_what_the_slow_loop_keeps(budget: int) -> None:
    samples = random_tokens(20, 13, 31, seed=budget)
    choice = DivPrune(budget).choose(hand_made(samples, block=0))
    for tokens, kept in zip(samples, choice.kept, strict=True):
        assert sorted(kept.tolist()) == expected(tokens, budget)
        assert len(set(kept.tolist())) == min(budget, len(tokens))


def test_first_choice_is_most_isolated() -> None:
    angles = torch.tensor([0.0, 0.1, 0.2, 1.5, 3.0, 3.05])
    tokens = torch.stack([angles.cos(), angles.sin()], dim=-1)
    assert select_most_isolated(tokens).tolist() == [3]


def test_opposite_tokens_exclude_self_as_neighbor() -> None:
    angles = torch.tensor([0.0, 1.7, 3.9])
    tokens = torch.stack([angles.cos(), angles.sin()], dim=-1)
    assert select_most_isolated(tokens).tolist() == [2]


def test_two_tokens_lower_index_first() -> None:
    for seed in range(20):
        assert select_most_isolated(random_tokens(2, seed=seed, width=64)[0]).tolist() == [0]


def test_many_tokens_are_compared_in_pieces() -> None:
    tokens = random_tokens(1100, width=4)[0]
    tokens[:, 0] = tokens[:, 0].abs() + 3
    tokens[1050] = torch.tensor([-1.0, 0, 0, 0])
    assert select_most_isolated(tokens).tolist() == [1050]


def test_a_batch_is_its_samples_alone() -> None:
    samples = random_tokens(20, 7, 31)
    together = DivPrune(0.3).choose(hand_made(samples, block=0))
    for tokens, kept in zip(samples, together.kept, strict=True):
        alone = DivPrune(0.3).choose(hand_made([tokens], block=0))
        assert alone.kept[0].tolist() == kept.tolist()


def test_duplicates_come_last() -> None:
    different = random_tokens(5)[0]
    tokens = torch.cat([different, different, different])
    kept = DivPrune(5).choose(hand_made([tokens], block=0)).kept[0]
    assert sorted(kept.remainder(5).tolist()) == [0, 1, 2, 3, 4]
    assert sorted(kept.tolist()) == [0, 1, 2, 3, 4]


def test_equal_tokens_are_taken_by_lowest_index() -> None:
    kept = DivPrune(3).choose(hand_made([torch.ones(6, 4)], block=0)).kept[0]
    assert kept.tolist() == [0, 1, 2]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_budget_above_all_tokens_keeps_all(size: int) -> None:
    kept = DivPrune(9).choose(hand_made(random_tokens(size), block=0)).kept[0]
    assert sorted(kept.tolist()) == list(range(size))


def test_prunes_before_decoder_and_reindexes() -> None:
    method = DivPrune(9)
    assert method.pruning_layers(4) == (0,)
    assert method.positions == "reindex"
    assert DivPrune(9, positions="original").positions == "original"


def test_nan_hidden_states_raise() -> None:
    tokens = random_tokens(9)[0]
    tokens[4, 2] = torch.inf
    with pytest.raises(InputError, match="visual holds inf at"):
        DivPrune(3).choose(hand_made([tokens], block=0))


@pytest.mark.parametrize("name", ["llava", "internvl"])
def test_model_view_equals_decoder_inputs(name: str) -> None:
    entry, model = ZOO[name], built(name)
    inputs = entry.inputs("ragged")
    words, states = entry.user_words(inputs), states_before(entry, inputs, 0)
    with torch.no_grad(), prune(model, DivPrune(5), prompt=words) as run:
        model(**inputs)
    for trace in run.trace:
        visual = states[trace.sample, entry.visual(inputs)[trace.sample]]
        assert trace.kept.tolist() == expected(visual, 5)


@pytest.mark.parametrize("seed", range(3))
def test_cosine_table_gives_same_selection(seed: int) -> None:
    """Fewer tokens than coordinates are searched in the table that the first one needed."""
    wide = random_tokens(40, seed=seed, width=48)[0]
    wide[10:20] = wide[:10] + 1e-6 * wide[20:30]
    first = select_most_isolated(wide)
    others = farthest_points(wide, budget=24, start=first)
    assert select_diverse(wide, budget=25).tolist() == [*first.tolist(), *others.tolist()]
    assert select_diverse(wide, budget=1).tolist() == first.tolist()
    copies = torch.cat([wide[:20], wide[:5]])
    first = select_most_isolated(copies)
    others = farthest_points(copies, budget=24, start=first)
    assert select_diverse(copies, budget=25).tolist() == [*first.tolist(), *others.tolist()]
