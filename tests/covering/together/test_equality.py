"""The accelerator's path gives the indices of the slow oracle, whichever way it has to take."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import tokencover as tc
from tests.covering import oracle
from tests.covering.strategies import problems, token_sets
from tests.covering.together.on_accelerator import (
    disturb_estimates,
    list_cover,
    pretend_accelerator,
)
from tokencover import covering
from tokencover.covering.together import one_by_one, prompt_centers
from tokencover.covering.together import visual_centers as centers

Problem = tuple[Tensor, Tensor, int, int, int]

WAYS: dict[str, dict[str, Any]] = {
    "as it is": {"_ROUNDS": 6},
    "no table": {"_TOKENS_OF_ONE": 0},
    "few candidates": {"_SPARE_CANDIDATES": 1, "_CANDIDATES_OF_ONE": 1},
    "few candidates, no table": {
        "_SPARE_CANDIDATES": 1,
        "_CANDIDATES_OF_ONE": 1,
        "_TOKENS_OF_ONE": 0,
        "_REPLAYED_AT_ONCE": 8,
    },
    "no correction": {"_ROUNDS": 1, "_MEAN_RIVALS": 1},
}


def cover_on_accelerator(problem: Problem) -> tuple[list[int], list[int]]:
    visual, prompt, budget, prompt_budget, fold = problem
    with pretend_accelerator():
        found = tc.mob(visual, prompt, budget=budget, prompt_budget=prompt_budget, fold=fold)
    assert isinstance(found, tc.Cover)
    return list_cover(found)


def cover_slowly(problem: Problem) -> tuple[list[int], list[int]]:
    visual, prompt, budget, prompt_budget, fold = problem
    return oracle.mob(visual.float().numpy(), prompt.float().numpy(), budget, prompt_budget, fold)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=60)
@given(problem=problems())
def test_equals_the_oracle(way: str, problem: Problem) -> None:
    with patch.multiple(centers, **WAYS[way]):
        assert cover_on_accelerator(problem) == cover_slowly(problem)


@pytest.mark.parametrize("largest", [0, 2**30])
@settings(max_examples=60)
@given(problem=problems(), noise=st.sampled_from([1e-3, 0.1, 0.5]))
def test_disturbed_estimates_within_bound_equal_oracle(
    largest: int, problem: Problem, noise: float
) -> None:
    with (
        disturb_estimates(noise),
        patch.multiple(centers, _SPARE_CANDIDATES=2, _CANDIDATES_OF_ONE=1),
        patch.multiple(one_by_one, _LARGEST_TABLE=largest, _CENTERS_AT_ONCE=2),
        patch.multiple(prompt_centers, _SPARE=0),
    ):
        assert cover_on_accelerator(problem) == cover_slowly(problem)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@settings(max_examples=40)
@given(problem=problems())
def test_any_dtype(dtype: torch.dtype, problem: Problem) -> None:
    held = problem[0].to(dtype), problem[1].to(dtype), *problem[2:]
    assert cover_on_accelerator(held) == cover_slowly(held)


@pytest.mark.parametrize("kind", ["isotropic", "clusters", "tight", "copies", "alike"])
def test_equals_the_search_on_a_cpu(kind: str) -> None:
    generator = torch.Generator().manual_seed(4)
    visual, prompt = (torch.randn(count, 96, generator=generator) for count in (700, 6))
    if kind in ("clusters", "tight", "alike"):
        spread = {"clusters": 0.3, "tight": 0.02, "alike": 1e-4}[kind]
        visual = visual[torch.arange(700) % 12] + spread * visual
    if kind == "copies":
        visual = visual[:90].repeat(8, 1)[:700]
    problem = visual, prompt, 150, 60, 12
    found = tc.mob(visual, prompt, budget=150, prompt_budget=60, fold=12)
    assert isinstance(found, tc.Cover)
    assert cover_on_accelerator(problem) == list_cover(found)


def test_masked_batch_equals_single_runs() -> None:
    generator = torch.Generator().manual_seed(1)
    visual, prompt = (torch.randn(4, count, 16, generator=generator) for count in (60, 9))
    visual_mask = torch.rand(4, 60, generator=generator) > 0.3
    prompt_mask = torch.rand(4, 9, generator=generator) > 0.4
    prompt_mask[2] = False  # a sample whose prompt has no words
    visual[3, :40] = visual[3, :1]  # and one in which most tokens are alike
    visual[~visual_mask] = float("nan")  # what is left out may hold anything
    prompt[~prompt_mask] = float("inf")
    counts: dict[str, Any] = {
        "budget": [20, 5, 12, 70],
        "prompt_budget": [10, 0, 6, 9],
        "fold": [3, 2, 1, 4],
    }
    masks: dict[str, Any] = {"visual_mask": visual_mask, "prompt_mask": prompt_mask}
    expected = [list_cover(each) for each in covering.mob_batch(visual, prompt, **counts, **masks)]
    for size in (1, 64):
        with pretend_accelerator(), patch.object(centers, "_SPARE_CANDIDATES", size):
            found = covering.mob_batch(visual, prompt, **counts, **masks)
        assert [list_cover(each) for each in found] == expected


@given(token_sets(), st.data())
def test_farthest_points_from_any_start(visual: Tensor, data: st.DataObject) -> None:
    everyone = st.integers(0, len(visual) - 1)
    start = sorted(data.draw(st.sets(everyone, max_size=4)))
    count = data.draw(st.integers(0, len(visual) - len(start)))
    with pretend_accelerator(), patch.object(centers, "_SPARE_CANDIDATES", 2):
        found = tc.farthest_points(visual, budget=count, start=torch.tensor(start).long())
    assert found.tolist() == oracle.choose_farthest(visual.numpy(), start, count)


@given(problems())
def test_nearest_points(problem: Problem) -> None:
    visual, prompt, _, budget, fold = problem
    for spare in (0, 64):
        with pretend_accelerator(), patch.object(prompt_centers, "_SPARE", spare):
            found = tc.nearest_points(visual, prompt, budget=budget, fold=fold).tolist()
        expected = oracle.choose_prompt_centers(visual.numpy(), prompt.numpy(), budget, fold)
        assert found == expected


@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e25, 3e37])
def test_only_directions_matter(scale: float) -> None:
    visual = torch.randint(-3, 4, (120, 12), generator=torch.Generator().manual_seed(3)).float()
    prompt = visual[:5] + 1
    plain = cover_on_accelerator((visual, prompt, 40, 15, 4))
    scaled = visual * scale, prompt * scale
    assert cover_on_accelerator((*scaled, 40, 15, 4)) == plain
    with pretend_accelerator():
        assert tc.farthest_points(scaled[0], budget=9).tolist() == (
            tc.farthest_points(visual, budget=9).tolist()
        )
        assert tc.nearest_points(*scaled, budget=9, fold=3).tolist() == (
            tc.nearest_points(visual, prompt, budget=9, fold=3).tolist()
        )
        assert float(tc.coupling(*scaled)) == float(tc.coupling(visual, prompt))
