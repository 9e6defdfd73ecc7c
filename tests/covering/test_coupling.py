"""Algorithm 2 and its approximations."""

from __future__ import annotations

import math
import resource

import numpy as np
import pytest
import torch
from hypothesis import given
from scipy.spatial.distance import directed_hausdorff as scipy_directed
from torch import Tensor

import tokencover as tc
from tests.covering.strategies import problems, token_sets
from tests.covering.test_mob import Problem
from tokencover import covering, theory
from tokencover.covering.coupling import _from_everything


def unit(tokens: Tensor) -> np.ndarray:
    return torch.nn.functional.normalize(tokens.double(), dim=1).numpy()


@given(problems())
def test_equals_scipy_both_ways(problem: Problem) -> None:
    visual, prompt = problem[0], problem[1]
    if len(prompt) == 0:
        return
    forth = scipy_directed(unit(visual), unit(prompt))[0]
    back = scipy_directed(unit(prompt), unit(visual))[0]
    assert float(covering.directed_hausdorff(visual, prompt)) == pytest.approx(forth, abs=1e-6)
    assert float(covering.directed_hausdorff(prompt, visual)) == pytest.approx(back, abs=1e-6)
    assert float(tc.coupling(visual, prompt)) == pytest.approx(max(forth, back), abs=1e-6)
    dense = [float(square.clamp(min=0).sqrt()) for square in _from_everything(visual, prompt)]
    assert dense == [
        float(covering.directed_hausdorff(visual, prompt)),
        float(covering.directed_hausdorff(prompt, visual)),
    ]


def test_equals_scipy_on_wide_tokens() -> None:
    generator = torch.Generator().manual_seed(0)
    visual = torch.randn(700, 4096, generator=generator)
    prompt = torch.randn(30, 4096, generator=generator)
    expected = max(
        scipy_directed(unit(visual), unit(prompt))[0], scipy_directed(unit(prompt), unit(visual))[0]
    )
    assert float(tc.coupling(visual, prompt)) == pytest.approx(expected, abs=1e-7)


@given(token_sets())
def test_a_set_has_no_distance_to_itself(tokens: Tensor) -> None:
    assert float(tc.coupling(tokens, tokens.flip(0))) == 0.0


def test_a_batch_with_masks_equals_the_single_runs() -> None:
    generator = torch.Generator().manual_seed(3)
    visual = torch.randn(3, 40, 12, generator=generator)
    prompt = torch.randn(3, 6, 12, generator=generator)
    visual_mask = torch.rand(3, 40, generator=generator) > 0.2
    prompt_mask = torch.rand(3, 6, generator=generator) > 0.2
    batch = tc.coupling(visual, prompt, visual_mask=visual_mask, prompt_mask=prompt_mask)
    for sample in range(3):
        alone = tc.coupling(
            visual[sample, visual_mask[sample]], prompt[sample, prompt_mask[sample]]
        )
        assert float(batch[sample]) == float(alone)
    assert torch.equal(tc.coupling(visual, prompt)[1], tc.coupling(visual[1], prompt[1]))


def test_many_tokens_need_no_table_of_differences() -> None:
    visual, prompt = torch.randn(100_000, 64), torch.randn(50, 64)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tc.coupling(visual, prompt)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 100_000 * 50 * 64 * 4 / 4  # a quarter of n * l * d float32


def test_an_empty_side_is_refused() -> None:
    with pytest.raises(tc.InputError, match="no token left"):
        tc.coupling(torch.eye(3), torch.empty(0, 3))
    with pytest.raises(tc.InputError, match="no token left"):
        tc.coupling(torch.eye(3), torch.eye(3), prompt_mask=torch.zeros(3, dtype=torch.bool))


class TestSampling:
    def test_all_tokens_give_the_exact_value(self) -> None:
        visual, prompt = torch.randn(50, 8), torch.randn(9, 8)
        found = theory.sampled_coupling(visual, prompt, visual_count=99, prompt_count=9)
        assert float(found.value) == float(tc.coupling(visual, prompt))
        assert found.error == 0.0

    def test_the_stated_share_holds_as_often_as_stated(self) -> None:
        generator = torch.Generator().manual_seed(0)
        visual = torch.randn(400, 6, generator=generator)
        prompt = torch.randn(5, 6, generator=generator)
        pair = torch.from_numpy(unit(visual)), torch.from_numpy(unit(prompt))
        to_prompt = torch.cdist(*pair).amin(1)
        held = 0
        for seed in range(200):
            found = theory.sampled_coupling(
                visual, prompt, visual_count=60, prompt_count=5, seed=seed
            )
            missed = float((to_prompt > float(found.value) + 1e-6).double().mean())
            held += missed < found.error
        assert held >= 0.95 * 200
        assert 0.05 < found.error < 0.07

    def test_it_is_repeatable(self) -> None:
        visual, prompt = torch.randn(90, 8), torch.randn(9, 8)
        values = {
            float(theory.sampled_coupling(visual, prompt, visual_count=9, prompt_count=4).value)
            for _ in range(3)
        }
        assert len(values) == 1


class TestProjection:
    def test_the_stated_error_holds_as_often_as_stated(self) -> None:
        generator = torch.Generator().manual_seed(0)
        visual = torch.randn(60, 512, generator=generator)
        prompt = torch.randn(6, 512, generator=generator)
        truth = float(tc.coupling(visual, prompt))
        held = 0
        for seed in range(50):
            found = theory.projected_coupling(visual, prompt, dimension=300, seed=seed)
            held += abs(float(found.value) - truth) <= found.error * float(found.value)
        assert held >= 0.95 * 50
        assert 0 < found.error < 0.5

    def test_too_few_dimensions_promise_nothing(self) -> None:
        found = theory.projected_coupling(torch.randn(60, 32), torch.randn(6, 32), dimension=4)
        assert found.error == math.inf


@pytest.mark.parametrize("confidence", [0.0, 1.0, float("nan")])
def test_a_wrong_confidence_is_refused(confidence: float) -> None:
    with pytest.raises(tc.InputError, match="confidence"):
        theory.projected_coupling(torch.eye(3), torch.eye(3), dimension=2, confidence=confidence)
