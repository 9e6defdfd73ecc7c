"""Algorithm 2."""

from __future__ import annotations

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
from tokencover import covering


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


def test_masked_batch_equals_single_runs() -> None:
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


def test_coupling_empty_side_raises() -> None:
    with pytest.raises(tc.InputError, match="no token left"):
        tc.coupling(torch.eye(3), torch.empty(0, 3))
    with pytest.raises(tc.InputError, match="no token left"):
        tc.coupling(torch.eye(3), torch.eye(3), prompt_mask=torch.zeros(3, dtype=torch.bool))
