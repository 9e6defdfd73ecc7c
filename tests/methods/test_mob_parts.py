"""The halves of MoB alone, against the slow oracle of the covering."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.covering.oracle import choose_farthest, cosines
from tests.methods.views import hand_made
from tokencover import InputError
from tokencover.methods import View
from tokencover.methods.farthest_only import FarthestOnly
from tokencover.methods.nearest_only import NearestOnly

SIZES, WORDS = [14, 23, 9], [3, 1, 5]
HALVES = [NearestOnly, FarthestOnly]


def noise(seed: int, count: int) -> Tensor:
    """Few values, so that many cosines are equal."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-1, 2, (count, 4), generator=generator).float()


STATES = [noise(seed, size) for seed, size in enumerate(SIZES)]
SPOKEN = [noise(seed + 50, size) for seed, size in enumerate(WORDS)]


def batch() -> View:
    return hand_made(STATES, words=SPOKEN, behind=WORDS)


def slow_nearest(visual: Tensor, words: Tensor, count: int) -> list[int]:
    """The best cosine with any word; the lowest index of equals."""
    table = cosines(words.double().numpy(), visual.double().numpy())
    score = [max(row[token] for row in table) for token in range(len(visual))]
    return sorted(range(len(visual)), key=lambda token: (-score[token], token))[:count]


@pytest.mark.parametrize("budget", [1, 2, 5, 9, 13, 100])
def test_nearest_keeps_the_best_cosines(budget: int) -> None:
    choice = NearestOnly(budget).choose(batch())
    for sample, (visual, words) in enumerate(zip(STATES, SPOKEN, strict=True)):
        expected = slow_nearest(visual, words, budget)
        assert choice.details[sample]["prompt_centers"].tolist() == expected
        assert sorted(choice.kept[sample].tolist()) == sorted(expected)
        assert len(choice.details[sample]["visual_centers"]) == 0
        assert "fallback" not in choice.details[sample]


@pytest.mark.parametrize("budget", [1, 2, 5, 9, 13, 100])
def test_farthest_keeps_farthest_points(budget: int) -> None:
    choice = FarthestOnly(budget).choose(batch())
    for sample, visual in enumerate(STATES):
        expected = choose_farthest(visual.double().numpy(), [], min(budget, len(visual)))
        assert choice.kept[sample].tolist() == expected
        assert choice.details[sample]["visual_centers"].tolist() == expected


def test_farthest_does_not_look_at_the_prompt() -> None:
    other = hand_made(STATES, words=[-each for each in SPOKEN], behind=WORDS)
    found, again = FarthestOnly(6).choose(batch()), FarthestOnly(6).choose(other)
    assert [each.tolist() for each in found.kept] == [each.tolist() for each in again.kept]


def test_empty_prompt_falls_back_to_farthest() -> None:
    spoken = batch().prompt_mask.clone()
    spoken[1] = False
    view = hand_made(STATES, words=SPOKEN, behind=WORDS, prompt_mask=spoken)
    choice = NearestOnly(5).choose(view)
    expected = choose_farthest(STATES[1].double().numpy(), [], 5)
    assert sorted(choice.kept[1].tolist()) == sorted(expected)
    assert choice.details[1]["visual_centers"].tolist() == expected
    assert "no words" in choice.details[1]["fallback"]
    for sample in (0, 2):
        nearest = slow_nearest(STATES[sample], SPOKEN[sample], 5)
        assert sorted(choice.kept[sample].tolist()) == sorted(nearest)
        assert "fallback" not in choice.details[sample]


def test_a_batch_without_any_word() -> None:
    nothing = torch.zeros(3, 0)
    view = hand_made(
        STATES,
        prompt=torch.zeros(3, 0, 4),
        prompt_mask=nothing.bool(),
        prompt_positions=nothing.long(),
    )
    found, expected = NearestOnly(4).choose(view), FarthestOnly(4).choose(view)
    assert [sorted(each.tolist()) for each in found.kept] == [
        sorted(each.tolist()) for each in expected.kept
    ]


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("budget", [1, 7, 0.3, 1.0, 50])
def test_a_batch_equals_its_samples_alone(half: Any, budget: float) -> None:
    together = half(budget).choose(batch())
    for sample, (visual, words) in enumerate(zip(STATES, SPOKEN, strict=True)):
        alone = half(budget).choose(hand_made([visual], words=[words], behind=len(words)))
        assert together.kept[sample].tolist() == alone.kept[0].tolist()
        share = int(budget * len(visual) + 0.5) if isinstance(budget, float) else budget
        assert len(set(alone.kept[0].tolist())) == min(share, len(visual))


@pytest.mark.parametrize("half", HALVES)
def test_where_they_act(half: Any) -> None:
    assert list(half(4).pruning_layers(8)) == [1]
    assert list(half(4, after=0).pruning_layers(8)) == [0]
    with pytest.raises(InputError, match="after=8 is out of range"):
        half(4, after=8).pruning_layers(8)
    with pytest.raises(InputError, match="got -2"):
        half(4, after=-2)
