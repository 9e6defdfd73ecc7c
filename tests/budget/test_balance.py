"""The split of a budget that covers prompt and image equally well."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

import tokencover as tc
from tests.covering import oracle
from tests.covering.strategies import problems
from tests.covering.test_mob import Problem
from tokencover.budget import balance_prompt_budget
from tokencover.covering import farthest_order, prompt_order
from tokencover.covering.coupling import directed_hausdorff


class Balance(NamedTuple):
    """Both covering radii for Kp = 0 .. K and Kv = 0 .. K, and the best Kp."""

    prompt_radius: list[float]
    visual_radius: list[float]
    prompt_budget: int

    @property
    def larger_radius(self) -> list[float]:
        pairs = zip(self.prompt_radius, reversed(self.visual_radius), strict=True)
        return [max(pair) for pair in pairs]


def balance(visual: Tensor, prompt: Tensor, budget: int) -> Balance:
    most = min(budget, len(visual))
    aligned = prompt_order(visual, prompt, most=most).radius.tolist()
    spread = farthest_order(visual, most=most).radius.tolist()
    return Balance(aligned, spread, balance_prompt_budget(visual, prompt, budget))


def worst(tokens: Tensor, centers: Tensor) -> float:
    if len(tokens) == 0:
        return 0.0
    return float(directed_hausdorff(tokens, centers)) if len(centers) else math.inf


def radii_one_by_one(visual: Tensor, prompt: Tensor, budget: int) -> list[tuple[float, float]]:
    """Run both selections for every split: Kp = 0 .. K."""
    total, found = min(budget, len(visual)), []
    for prompt_budget in range(total + 1):
        aligned = tc.nearest_points(visual, prompt, budget=prompt_budget, fold=len(visual))
        spread = tc.farthest_points(visual, budget=total - prompt_budget)
        found.append((worst(prompt, visual[aligned]), worst(visual, visual[spread])))
    return found


@settings(max_examples=60)
@given(problems())
def test_equals_running_every_split(problem: Problem) -> None:
    visual, prompt, budget, _, _ = problem
    expected = radii_one_by_one(visual, prompt, budget)
    found = balance(visual, prompt, budget)
    assert len(found.larger_radius) == len(expected)
    assert list(found.prompt_radius) == [pair[0] for pair in expected]
    assert list(reversed(found.visual_radius)) == [pair[1] for pair in expected]
    larger = [max(pair) for pair in expected]
    assert found.prompt_budget == larger.index(min(larger))


@settings(max_examples=25)
@given(problems())
def test_radii_equal_the_slow_ones(problem: Problem) -> None:
    """Straight from the definitions, in NumPy."""
    visual, prompt, budget = problem[0].numpy(), problem[1].numpy(), problem[2]
    if len(prompt) == 0:
        return
    found = balance(*problem[:2], budget)
    total = len(found.larger_radius) - 1
    aligned = oracle.choose_prompt_centers(visual, prompt, total, fold=len(visual))
    spread = oracle.choose_farthest(visual, [], total)
    for tokens, centers, radii in (
        (prompt, aligned, found.prompt_radius),
        (visual, spread, found.visual_radius),
    ):
        sizes = tokens.any(1).astype(float)[:, None] + visual.any(1).astype(float)
        table = np.sqrt(np.maximum(sizes - 2 * oracle.cosines(tokens, visual), 0.0))
        for count in range(1, total + 1):
            radius = table[:, centers[:count]].min(1).max()
            assert radii[count] == pytest.approx(radius, abs=1e-7)


@settings(max_examples=40)
@given(problems())
def test_both_curves_fall(problem: Problem) -> None:
    visual, prompt, budget, _, _ = problem
    found = balance(visual, prompt, budget)
    for curve in (found.prompt_radius, found.visual_radius):
        assert list(curve) == sorted(curve, reverse=True)


@settings(max_examples=40)
@given(problems())
def test_mob_prompt_centers_match_counted_radii(problem: Problem) -> None:
    visual, prompt, budget, _, _ = problem
    if len(prompt) == 0:
        return
    found = balance(visual, prompt, budget)
    best = found.prompt_budget
    cover = tc.mob(visual, prompt, budget=budget, prompt_budget=best, fold=max(best, 1))
    assert isinstance(cover, tc.Cover)
    assert worst(prompt, visual[cover.prompt_centers]) == found.prompt_radius[best]


def test_without_prompt_everything_is_for_the_image() -> None:
    assert balance_prompt_budget(torch.eye(5), torch.empty(0, 5), 3) == 0


def test_balance_budget_one_gives_visual() -> None:
    assert balance_prompt_budget(torch.eye(5), torch.eye(5)[:2], 1) == 0


def test_ties_go_to_the_smallest_prompt_budget() -> None:
    aligned = SimpleNamespace(radius=torch.tensor([math.inf, 0.5, 0.5, 0.5]))
    spread = SimpleNamespace(radius=torch.tensor([math.inf, 0.4, 0.4, 0.3]))
    with (
        patch("tokencover.budget.split.prompt_order", return_value=aligned),
        patch("tokencover.budget.split.farthest_order", return_value=spread),
    ):
        found = balance_prompt_budget(torch.eye(3), torch.eye(3), 3)
    assert found == 1


def test_balance_covered_image_gives_prompt_rest() -> None:
    """Three kinds of patch, many copies of each; every prompt token needs its own patch."""
    patches = torch.nn.functional.one_hot(torch.arange(30) % 3, 8).float()
    near_words = torch.eye(8)[3:7]
    visual = torch.cat([near_words, patches])
    found = balance(visual, torch.eye(8)[3:7], 11)
    assert found.prompt_budget == 4
    assert found.larger_radius[4] == 0.0


def test_threads_and_dtype_change_nothing() -> None:
    generator = torch.Generator().manual_seed(5)
    visual = torch.randn(120, 96, generator=generator).bfloat16()
    prompt = torch.randn(9, 96, generator=generator).bfloat16()
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = balance(visual, prompt, 100)
        torch.set_num_threads(2)
        assert balance(visual.double(), prompt.double(), 100) == alone
    finally:
        torch.set_num_threads(before)


def test_invalid_input_raises() -> None:
    with pytest.raises(tc.InputError, match="at least 1"):
        balance_prompt_budget(torch.eye(3), torch.eye(3), 0)
    with pytest.raises(tc.InputError, match="different widths"):
        balance_prompt_budget(torch.eye(3), torch.eye(4), 2)
