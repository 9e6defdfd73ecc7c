"""k-fold nearest-neighbour covering."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given

import tokencover as tc
from tests.covering import oracle
from tests.covering.strategies import problems
from tests.covering.test_mob import Problem
from tokencover.covering.estimate import Cloud
from tokencover.covering.exact import RESOLUTION, snap
from tokencover.covering.nearest import nearest_cover


@given(problems())
def test_equals_the_oracle(problem: Problem) -> None:
    visual, prompt, _, prompt_budget, fold = problem
    found = tc.nearest_points(visual, prompt, budget=prompt_budget, fold=fold).tolist()
    assert found == oracle.prompt_centers(visual.numpy(), prompt.numpy(), prompt_budget, fold)


@pytest.mark.parametrize("room", [12, 60, 300])  # 12 is not enough for all candidates
def test_the_centers_are_exact_whatever_the_room(room: int) -> None:
    generator = torch.Generator().manual_seed(3)
    visual = torch.randn(300, 40, generator=generator)
    prompt = torch.randn(5, 40, generator=generator)
    clouds = Cloud.of("visual", visual), Cloud.of("prompt", prompt)
    centers = nearest_cover(*clouds, 12, 8, room)
    expected = oracle.prompt_centers(visual.numpy(), prompt.numpy(), 12, 8)
    assert centers.tokens.tolist() == expected
    assert torch.equal(centers.directions.double() * RESOLUTION, snap(visual[expected]).grid)


def test_a_candidate_is_scored_by_its_best_prompt_token() -> None:
    prompt = torch.eye(2)
    visual = torch.tensor([[1.0, 0.1], [0.2, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert tc.nearest_points(visual, prompt, budget=4, fold=2).tolist() == [2, 3, 0, 1]


def test_a_short_prompt_proposes_few() -> None:
    visual, prompt = torch.eye(6), torch.eye(6)[:1]
    assert tc.nearest_points(visual, prompt, budget=5, fold=2).tolist() == [0, 1]
