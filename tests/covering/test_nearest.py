"""k-fold nearest-neighbor covering."""

from __future__ import annotations

from unittest.mock import patch

import torch
from hypothesis import given
from hypothesis import strategies as st

import tokencover as tc
from tests.covering import oracle
from tests.covering.search.wrong_estimates import disturb_estimates
from tests.covering.strategies import problems
from tests.covering.test_mob import Problem
from tokencover.covering.exact import cosine
from tokencover.covering.mob import choose_nearest
from tokencover.covering.search.vectors import Distinct, Vectors


@given(problems())
def test_equals_the_oracle(problem: Problem) -> None:
    visual, prompt, _, prompt_budget, fold = problem
    found = tc.nearest_points(visual, prompt, budget=prompt_budget, fold=fold).tolist()
    assert found == oracle.choose_prompt_centers(
        visual.numpy(), prompt.numpy(), prompt_budget, fold
    )


@given(problems(), st.sampled_from([1e-3, 0.1, 0.5]))
def test_disturbed_estimates_within_bound_equal_oracle(problem: Problem, noise: float) -> None:
    visual, prompt, _, prompt_budget, fold = problem
    with disturb_estimates(noise):
        found = tc.nearest_points(visual, prompt, budget=prompt_budget, fold=fold).tolist()
    assert found == oracle.choose_prompt_centers(
        visual.numpy(), prompt.numpy(), prompt_budget, fold
    )


def test_only_close_calls_are_made_exact() -> None:
    generator = torch.Generator().manual_seed(3)
    visual, prompt = (torch.randn(count, 40, generator=generator) for count in (300, 5))
    visual[200] = visual[100]
    sets = Distinct.of("visual", visual), Vectors.of("prompt", prompt)
    with patch("tokencover.covering.mob.cosine", wraps=cosine) as exact:
        found = choose_nearest(*sets, 12, 8)
    assert found.tolist() == oracle.choose_prompt_centers(visual.numpy(), prompt.numpy(), 12, 8)
    assert sum(len(call.args[1]) for call in exact.call_args_list) < 12


def test_candidate_score_is_best_prompt_cosine() -> None:
    prompt = torch.eye(2)
    visual = torch.tensor([[1.0, 0.1], [0.2, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert tc.nearest_points(visual, prompt, budget=4, fold=2).tolist() == [2, 3, 0, 1]


def test_a_short_prompt_proposes_few() -> None:
    visual, prompt = torch.eye(6), torch.eye(6)[:1]
    assert tc.nearest_points(visual, prompt, budget=5, fold=2).tolist() == [0, 1]
