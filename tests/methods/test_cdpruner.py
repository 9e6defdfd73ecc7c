"""CDPruner: the greedy set of a determinantal point process, checked against determinants."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.methods.test_mob import states_before
from tests.methods.views import hand_made
from tests.pruning.test_matrix import built
from tests.zoo import ZOO
from tokencover.covering.exact import snap
from tokencover.errors import InputError
from tokencover.methods._shared.greedy_sets import choose_volume
from tokencover.methods.cdpruner import CDPruner, rate_by_prompt
from tokencover.pruning import prune


def unit(tokens: Tensor) -> Tensor:
    return torch.nn.functional.normalize(tokens.double(), dim=-1)


def kernel(tokens: Tensor, words: Tensor, sign: int = 1) -> Tensor:
    similarity = sign * unit(tokens) @ unit(words.double().mean(0, keepdim=True))[0]
    relevance = (similarity - similarity.min()) / (similarity.max() - similarity.min())
    return relevance[:, None] * (unit(tokens) @ unit(tokens).T) * relevance[None, :]


def expected(table: Tensor, budget: int) -> list[int]:
    """Add whichever token makes the determinant of the chosen ones largest."""
    kept: list[int] = []
    while len(kept) < min(budget, len(table)):
        left = [i for i in range(len(table)) if i not in kept]
        volume = {i: float(torch.linalg.det(table[[*kept, i]][:, [*kept, i]])) for i in left}
        kept.append(max(left, key=lambda i: volume[i]))
    return kept


def random_tokens(*sizes: int, seed: int = 0, width: int = 12) -> list[Tensor]:
    make = torch.Generator().manual_seed(seed)
    return [torch.randn(size, width, generator=make) for size in sizes]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("budget", [1, 2, 5, 9])
def test_it_keeps_what_determinants_say(budget: int, sign: int) -> None:
    samples, words = random_tokens(20, 13, 31, seed=budget), random_tokens(3, 1, 4, seed=99)
    view = hand_made(samples, behind=[3, 1, 4], words=words, block=0)
    choice = CDPruner(budget, sign=sign).choose(view)  # type: ignore[arg-type]
    for tokens, prompt, kept in zip(samples, words, choice.kept, strict=True):
        assert kept.tolist() == expected(kernel(tokens, prompt, sign), budget)


def test_relevance_reaches_from_nothing_to_one() -> None:
    tokens, words = random_tokens(20, 3)
    relevance = rate_by_prompt(snap(tokens), words, 1)
    similarity = unit(tokens) @ unit(words.mean(0, keepdim=True))[0]
    assert float(relevance.min()) == 0
    assert float(relevance.max()) == 1
    assert relevance.argsort().tolist() == similarity.argsort().tolist()
    turned = rate_by_prompt(snap(tokens), words, -1)
    torch.testing.assert_close(turned, 1 - relevance)


def test_without_a_prompt_diversity_alone_counts() -> None:
    (tokens,) = random_tokens(20)
    view = hand_made([tokens], behind=0, words=[torch.empty(0, 12)], block=0)
    kept = CDPruner(6).choose(view).kept[0]
    table = (unit(tokens) @ unit(tokens).T).fill_diagonal_(1)  # all start alike
    assert kept.tolist() == expected(table, 6)


def test_uninformative_prompt_gives_equal_relevance() -> None:
    (tokens,) = random_tokens(20)
    nothing = torch.zeros(2, 12)
    assert rate_by_prompt(snap(tokens), nothing, 1).tolist() == [1.0] * 20


def test_a_batch_is_its_samples_alone() -> None:
    samples, words = random_tokens(20, 7, 31), random_tokens(3, 1, 4, seed=99)
    together = CDPruner(0.4).choose(hand_made(samples, behind=[3, 1, 4], words=words, block=0))
    for tokens, prompt, kept in zip(samples, words, together.kept, strict=True):
        view = hand_made([tokens], behind=len(prompt), words=[prompt], block=0)
        assert CDPruner(0.4).choose(view).kept[0].tolist() == kept.tolist()


def test_above_the_rank_the_most_relevant_follow() -> None:
    tokens, words = random_tokens(15, 2, width=3)
    relevance = rate_by_prompt(snap(tokens), words, 1)
    view = hand_made([tokens], behind=2, words=[words], block=0)
    kept = CDPruner(8).choose(view).kept[0].tolist()
    assert kept[:3] == expected(kernel(tokens, words), 3)
    others = sorted(set(range(15)) - set(kept[:3]), key=lambda i: (-float(relevance[i]), i))
    assert kept[3:] == others[:5]


@pytest.mark.parametrize("seed", range(5))
def test_duplicates_are_taken_by_lowest_index(seed: int) -> None:
    """Wide tokens, where sums of equal rows may round differently."""
    different, words = random_tokens(9, 2, seed=seed, width=257)
    view = hand_made([different.repeat(5, 1)], behind=2, words=[words], block=0)
    alone = hand_made([different], behind=2, words=[words], block=0)
    kept = CDPruner(6).choose(view).kept[0].tolist()
    assert kept == CDPruner(6).choose(alone).kept[0].tolist()


def test_the_volume_ends_with_the_last_direction() -> None:
    different = random_tokens(6)[0]
    points = snap(torch.cat([different, -different, torch.zeros(2, 12)]))
    order = choose_volume(points, torch.ones(14, dtype=torch.float64), 14)
    assert sorted(order.tolist()) == list(range(6))


def test_many_steps_stay_exact_enough() -> None:
    tokens = random_tokens(120, width=100)[0]
    order = choose_volume(snap(tokens), torch.ones(120, dtype=torch.float64), 100).tolist()
    table = unit(tokens) @ unit(tokens).T
    for step in (1, 40, 80, 98):
        kept = order[:step]
        inside = torch.linalg.inv(table[kept][:, kept])
        gain = table.diagonal() - ((table[:, kept] @ inside) * table[:, kept]).sum(-1)
        gain[kept] = -torch.inf
        assert order[step] == int(gain.argmax())


@pytest.mark.parametrize("size", [1, 2, 5, 14])
def test_a_budget_above_all_tokens_keeps_all(size: int) -> None:
    kept = CDPruner(20).choose(hand_made(random_tokens(size), block=0)).kept[0]
    assert sorted(kept.tolist()) == list(range(size))


def test_prunes_before_decoder_and_reindexes() -> None:
    assert CDPruner(9).pruning_layers(4) == (0,)
    assert CDPruner(9).positions == "reindex"


def test_invalid_settings_raise() -> None:
    with pytest.raises(InputError, match="sign must be 1 or -1, got 0"):
        CDPruner(9, sign=0)  # type: ignore[arg-type]


def test_nan_hidden_states_raise() -> None:
    tokens, words = random_tokens(9, 3)
    words[1, 1] = torch.nan
    with pytest.raises(InputError, match="prompt holds nan at"):
        CDPruner(3).choose(hand_made([tokens], words=[words], block=0))


@pytest.mark.parametrize("name", ["llava", "internvl"])
def test_model_view_equals_decoder_inputs(name: str) -> None:
    entry, model = ZOO[name], built(name)
    inputs = entry.inputs("ragged")
    words, states = entry.user_words(inputs), states_before(entry, inputs, 0)
    with torch.no_grad(), prune(model, CDPruner(5), prompt=words) as run:
        model(**inputs)
    for trace in run.trace:
        visual = states[trace.sample, entry.visual(inputs)[trace.sample]]
        prompt = states[trace.sample, words[trace.sample]]
        assert trace.kept.tolist() == sorted(expected(kernel(visual, prompt), 5))
