"""The approximations of Algorithm 2 keep the error they state."""

from __future__ import annotations

import math

import pytest
import torch

import tokencover as tc
from research.theory.coupling_estimates import projected_coupling, sampled_coupling


class TestSampling:
    def test_all_tokens_give_the_exact_value(self) -> None:
        visual, prompt = torch.randn(50, 8), torch.randn(9, 8)
        found = sampled_coupling(visual, prompt, visual_count=99, prompt_count=9)
        assert float(found.value) == float(tc.coupling(visual, prompt))
        assert found.error == 0.0

    def test_the_stated_share_holds_as_often_as_stated(self) -> None:
        generator = torch.Generator().manual_seed(0)
        visual = torch.randn(400, 6, generator=generator)
        prompt = torch.randn(5, 6, generator=generator)
        pair = [torch.nn.functional.normalize(each.double(), dim=1) for each in (visual, prompt)]
        to_prompt = torch.cdist(pair[0], pair[1]).amin(1)
        held = 0
        for seed in range(200):
            found = sampled_coupling(visual, prompt, visual_count=60, prompt_count=5, seed=seed)
            missed = float((to_prompt > float(found.value) + 1e-6).double().mean())
            held += missed < found.error
        assert held >= 0.95 * 200
        assert 0.05 < found.error < 0.07

    def test_it_is_repeatable(self) -> None:
        visual, prompt = torch.randn(90, 8), torch.randn(9, 8)
        values = {
            float(sampled_coupling(visual, prompt, visual_count=9, prompt_count=4).value)
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
            found = projected_coupling(visual, prompt, dimension=300, seed=seed)
            held += abs(float(found.value) - truth) <= found.error * float(found.value)
        assert held >= 0.95 * 50
        assert 0 < found.error < 0.5

    def test_too_few_dimensions_promise_nothing(self) -> None:
        found = projected_coupling(torch.randn(60, 32), torch.randn(6, 32), dimension=4)
        assert found.error == math.inf


@pytest.mark.parametrize("confidence", [0.0, 1.0, float("nan")])
def test_a_wrong_confidence_is_refused(confidence: float) -> None:
    with pytest.raises(tc.InputError, match="confidence"):
        projected_coupling(torch.eye(3), torch.eye(3), dimension=2, confidence=confidence)
