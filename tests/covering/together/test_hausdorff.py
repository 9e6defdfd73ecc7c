"""Eta of a batch on an accelerator is the number that a CPU finds."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
from hypothesis import given

import tokencover as tc
from tests.covering.strategies import problems
from tests.covering.together.on_accelerator import pretend_accelerator
from tests.covering.together.test_equality import Problem
from tokencover import covering
from tokencover.covering.together import hausdorff_pairs


@given(problems())
def test_equals_the_cpu(problem: Problem) -> None:
    visual, prompt = problem[0], problem[1]
    if len(prompt) == 0:
        return
    pairs = (visual, prompt), (prompt, visual)
    expected = [float(covering.directed_hausdorff(*pair)) for pair in pairs]
    for few in (1, 64):  # one pair is hardly ever enough: all of them decide then
        with pretend_accelerator(), patch.object(hausdorff_pairs, "_FEW", few):
            assert [float(covering.directed_hausdorff(*pair)) for pair in pairs] == expected
            assert float(tc.coupling(visual, prompt)) == max(expected)


def test_a_batch_with_masks() -> None:
    generator = torch.Generator().manual_seed(3)
    visual, prompt = (torch.randn(3, count, 12, generator=generator) for count in (40, 6))
    visual_mask, prompt_mask = (
        torch.rand(3, count, generator=generator) > 0.2 for count in (40, 6)
    )
    visual[1] = visual[1, :1]  # all alike: no shortlist is enough
    masks = {"visual_mask": visual_mask, "prompt_mask": prompt_mask}
    expected = tc.coupling(visual, prompt, **masks)
    visual[~visual_mask] = float("nan")
    with pretend_accelerator(), patch.object(hausdorff_pairs, "_FEW", 8):
        assert torch.equal(tc.coupling(visual, prompt, **masks), expected)


def test_unsupported_input_raises() -> None:
    with pretend_accelerator():
        with pytest.raises(tc.InputError, match="no token left"):
            tc.coupling(torch.eye(3), torch.empty(0, 3))
        with pytest.raises(tc.InputError, match="no token left"):
            tc.coupling(torch.eye(3), torch.eye(3), prompt_mask=torch.zeros(3, dtype=torch.bool))
        with pytest.raises(tc.InputError, match="visual holds nan"):
            tc.coupling(torch.full((2, 3), float("nan")), torch.eye(3))
