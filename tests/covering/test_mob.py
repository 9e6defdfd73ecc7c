"""Algorithm 1 against the oracle, and what must never change its result."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from torch import Tensor

import tokencover as tc
from tests.covering import oracle
from tests.covering.strategies import problems
from tokencover.covering import mob_batch, mob_literal, snap
from tokencover.covering.accelerator import cover_together
from tokencover.covering.checks import SampleCounts, Samples

Problem = tuple[Tensor, Tensor, int, int, int]


def cover(visual: Tensor, prompt: Tensor, budget: int, prompt_budget: int, fold: int) -> tc.Cover:
    found = tc.mob(visual, prompt, budget=budget, prompt_budget=prompt_budget, fold=fold)
    assert isinstance(found, tc.Cover)
    return found


def lists(found: tc.Cover) -> tuple[list[int], list[int]]:
    return found.prompt_centers.tolist(), found.visual_centers.tolist()


def cover_by_accelerator(problem: Problem) -> tc.Cover:
    """The accelerator's code path, on the CPU."""
    visual, prompt, budget, prompt_budget, fold = problem
    counts = SampleCounts(min(budget, len(visual)), min(prompt_budget, len(visual)), fold)
    exists, spoken = (torch.ones(1, len(each), dtype=torch.bool) for each in (visual, prompt))
    samples = Samples(visual[None], prompt[None], exists, spoken, [counts])
    return tc.Cover(*cover_together(samples)[0])


def make_structured(seed: int, count: int, width: int = 64, rank: int = 8) -> tuple[Tensor, Tensor]:
    """Large enough that only a part of the tokens is ever looked at exactly."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.randn(rank, width, generator=generator)
    visual = torch.randn(count, rank, generator=generator) @ basis
    visual += 0.1 * torch.randn(count, width, generator=generator)
    return visual, torch.randn(7, rank, generator=generator) @ basis


@given(problems())
def test_equals_the_oracle(problem: Problem) -> None:
    visual, prompt, budget, prompt_budget, fold = problem
    expected = oracle.mob(visual.numpy(), prompt.numpy(), budget, prompt_budget, fold)
    assert lists(cover(*problem)) == expected
    assert lists(cover_by_accelerator(problem)) == expected


def cover_literally(problem: Problem) -> tuple[list[int], list[int]]:
    """The reference implementation, on tokens whose cosines are exact."""
    visual, prompt, budget, prompt_budget, fold = problem
    tokens, words = snap(visual).grid, snap(prompt).grid
    return lists(mob_literal(tokens, words, budget=budget, prompt_budget=prompt_budget, fold=fold))


@given(problems())
def test_equals_the_reference_implementation(problem: Problem) -> None:
    """Ties, copies and zero tokens included."""
    visual, prompt, budget, prompt_budget, fold = problem
    if len(prompt) == 0 or prompt_budget == 0:
        with pytest.raises(tc.InputError, match=r"begins with a prompt center.*use tc\.mob"):
            cover_literally(problem)
        return
    problem = visual, prompt, min(budget, len(visual)), min(prompt_budget, len(visual)), fold
    assert cover_literally(problem) == lists(cover(*problem))


@pytest.mark.parametrize("kind", ["random", "structured", "copies"])
@pytest.mark.parametrize("seed", range(3))
def test_equals_the_reference_implementation_on_larger_sets(kind: str, seed: int) -> None:
    visual, prompt = make_structured(seed, 400, width=130)
    if kind == "random":
        visual = torch.randn(visual.shape, generator=torch.Generator().manual_seed(seed))
    if kind == "copies":
        visual = visual[:50].repeat(8, 1)
    problem = visual, prompt, 160, 60, 12
    assert cover_literally(problem) == lists(cover(*problem))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("width", [3, 64, 1500])
def test_equals_the_oracle_on_larger_sets(seed: int, width: int) -> None:
    visual, prompt = make_structured(seed, 90, width)
    expected = oracle.mob(visual.numpy(), prompt.numpy(), 40, 12, 3)
    assert lists(cover(visual, prompt, 40, 12, 3)) == expected


@pytest.mark.parametrize("kind", ["structured", "isotropic", "blank", "noisy blank"])
def test_both_code_paths_agree_on_many_tokens(kind: str) -> None:
    visual, prompt = make_structured(5, 900)
    if kind == "isotropic":
        visual = torch.randn(visual.shape, generator=torch.Generator().manual_seed(6))
    if kind == "blank":  # a page with a few lines of text
        visual[40:] = visual[40]
    if kind == "noisy blank":  # differences float32 products cannot see
        visual[40:] = visual[40] + 1e-5 * visual[40:]
    problem = visual, prompt, 200, 60, 12
    assert lists(cover(*problem)) == lists(cover_by_accelerator(problem))


@given(problems())
def test_keeps_exactly_the_budget_and_nothing_twice(problem: Problem) -> None:
    found = cover(*problem)
    kept = torch.cat([found.prompt_centers, found.visual_centers])
    assert len(found) == len(kept) == len(kept.unique()) == min(problem[2], len(problem[0]))
    assert found.indices.tolist() == sorted(kept.tolist())


def test_masked_batch_equals_single_runs() -> None:
    generator = torch.Generator().manual_seed(1)
    visual = torch.randn(4, 60, 16, generator=generator)
    prompt = torch.randn(4, 9, 16, generator=generator)
    visual_mask = torch.rand(4, 60, generator=generator) > 0.3
    prompt_mask = torch.rand(4, 9, generator=generator) > 0.4
    prompt_mask[2] = False  # a sample whose prompt has no words
    visual[~visual_mask] = float("nan")  # what is left out may hold anything
    prompt[~prompt_mask] = float("inf")
    budgets, prompt_budgets, folds = [20, 5, 12, 70], [10, 0, 6, 9], [3, 2, 1, 4]
    batch = mob_batch(
        visual,
        prompt,
        budget=budgets,
        prompt_budget=prompt_budgets,
        fold=folds,
        visual_mask=visual_mask,
        prompt_mask=prompt_mask,
    )
    for sample, found in enumerate(batch):
        place = visual_mask[sample].nonzero().squeeze(-1)
        alone = cover(
            visual[sample, visual_mask[sample]],
            prompt[sample, prompt_mask[sample]],
            budgets[sample],
            prompt_budgets[sample],
            folds[sample],
        )
        assert found.prompt_centers.tolist() == place[alone.prompt_centers].tolist()
        assert found.visual_centers.tolist() == place[alone.visual_centers].tolist()
    counts = [
        SampleCounts(min(b, n), min(p, n), f)
        for b, p, f, n in zip(
            budgets, prompt_budgets, folds, visual_mask.sum(1).tolist(), strict=True
        )
    ]
    dense = cover_together(Samples(visual, prompt, visual_mask, prompt_mask, counts))
    assert [lists(tc.Cover(*each)) for each in dense] == [lists(each) for each in batch]


def test_a_mask_on_a_single_sample() -> None:
    visual, prompt = make_structured(3, 50)
    mask = torch.arange(50) % 3 != 0
    found = tc.mob(visual, prompt, budget=12, prompt_budget=5, fold=2, visual_mask=mask)
    assert isinstance(found, tc.Cover)
    alone = cover(visual[mask], prompt, 12, 5, 2)
    assert found.indices.tolist() == mask.nonzero().squeeze(-1)[alone.indices].tolist()


@given(problems())
def test_mob_prompt_order_same_centers(problem: Problem) -> None:
    visual, prompt, *split = problem
    assert lists(cover(visual, prompt.flip(0), *split)) == lists(cover(visual, prompt, *split))


@pytest.mark.parametrize("seed", range(5))
def test_permuting_visual_tokens_permutes_the_result(seed: int) -> None:
    visual, prompt = make_structured(seed, 300)
    shuffle = torch.randperm(300, generator=torch.Generator().manual_seed(seed))
    first = cover(visual, prompt, 60, 20, 5)
    second = cover(visual[shuffle], prompt, 60, 20, 5)
    assert shuffle[second.prompt_centers].tolist() == first.prompt_centers.tolist()
    assert shuffle[second.visual_centers].tolist() == first.visual_centers.tolist()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_mob_any_dtype_same_centers(dtype: torch.dtype) -> None:
    visual, prompt = make_structured(2, 200)
    visual, prompt = visual.to(dtype), prompt.to(dtype)
    held = visual.float(), prompt.float()
    assert lists(cover(visual, prompt, 50, 20, 5)) == lists(cover(*held, 50, 20, 5))


def test_the_number_of_threads_does_not_matter() -> None:
    visual, prompt = make_structured(4, 400, width=1030)
    threads = torch.get_num_threads()
    found = []
    try:
        for number in (1, 2, 5):
            torch.set_num_threads(number)
            found.append(lists(cover(visual, prompt, 90, 30, 6)))
    finally:
        torch.set_num_threads(threads)
    assert found[0] == found[1] == found[2]


def test_mob_autocast_and_tf32_same_centers() -> None:
    visual, prompt = make_structured(8, 300)
    plain = lists(cover(visual, prompt, 80, 30, 6))
    with torch.autocast("cpu", torch.bfloat16):
        assert lists(cover(visual, prompt, 80, 30, 6)) == plain
    mkldnn: Any = torch.backends.mkldnn
    before = mkldnn.matmul.fp32_precision
    try:
        mkldnn.matmul.fp32_precision = "bf16"
        assert lists(cover(visual, prompt, 80, 30, 6)) == plain
    finally:
        mkldnn.matmul.fp32_precision = before


@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e25, 3e37])
def test_only_directions_matter(scale: float) -> None:
    visual = torch.randint(-3, 4, (120, 12), generator=torch.Generator().manual_seed(3)).float()
    prompt = visual[:5] + 1
    assert lists(cover(visual * scale, prompt * scale, 40, 15, 4)) == lists(
        cover(visual, prompt, 40, 15, 4)
    )


def test_inputs_are_left_alone_and_gradients_ignored() -> None:
    visual, prompt = make_structured(1, 50)
    visual.requires_grad_()
    before = visual.detach().clone()
    found = cover(visual, prompt, 10, 5, 2)
    assert torch.equal(visual, before)
    assert not found.indices.requires_grad
