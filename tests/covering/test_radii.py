"""Radii and separation of every prefix of a nested order."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

import tokencover as tc
from tests.covering.strategies import problems, token_sets
from tests.covering.test_mob import Problem
from tokencover.covering.coupling import directed_hausdorff
from tokencover.covering.exact import snap, square_distance
from tokencover.covering.radii import farthest_order, prompt_order


def table_of(first: Tensor, second: Tensor) -> Tensor:
    """Distances by differences of unit vectors, not by cosines."""
    units = [torch.nn.functional.normalize(each.double(), dim=1) for each in (first, second)]
    table: Tensor = (units[0].unsqueeze(1) - units[1].unsqueeze(0)).norm(dim=-1)
    return table


@settings(max_examples=80)
@given(token_sets())
def test_farthest_order_by_definition(tokens: Tensor) -> None:
    found = farthest_order(tokens, most=len(tokens))
    assert found.order.tolist() == tc.farthest_points(tokens, budget=len(tokens)).tolist()
    table = table_of(tokens, tokens)
    assert found.radius[0] == math.inf
    assert found.separation[:2].tolist() == [math.inf, math.inf]
    for count in range(1, len(tokens) + 1):
        chosen = found.order[:count].tolist()
        radius = float(table[:, chosen].amin(1).amax())
        assert float(found.radius[count]) == pytest.approx(radius, abs=1e-6)
        gaps = [float(table[pair]) for pair in itertools.combinations(chosen, 2)]
        separation = min(gaps, default=math.inf)
        assert float(found.separation[count]) == pytest.approx(separation, abs=1e-6)
    assert float(found.radius[-1]) == 0.0


@settings(max_examples=40)
@given(token_sets())
def test_a_short_order_begins_a_long_one(tokens: Tensor) -> None:
    whole = farthest_order(tokens, most=len(tokens))
    for most in (1, 2, len(tokens) // 2):
        part = farthest_order(tokens, most=max(1, most))
        size = len(part.order)
        assert part.order.tolist() == whole.order[:size].tolist()
        assert part.radius.tolist() == whole.radius[: size + 1].tolist()
        assert part.separation.tolist() == whole.separation[: size + 1].tolist()


@settings(max_examples=60)
@given(problems())
def test_prompt_order_by_definition(problem: Problem) -> None:
    visual, prompt = problem[0], problem[1]
    found = prompt_order(visual, prompt, most=len(visual))
    assert sorted(found.order.tolist()) == list(range(len(visual)))
    if len(prompt) == 0:
        assert found.radius.tolist() == [0.0] * (len(visual) + 1)
        return
    order = tc.nearest_points(visual, prompt, budget=len(visual), fold=len(visual))
    assert found.order.tolist() == order.tolist()
    assert found.radius[0] == math.inf
    for count in range(1, len(visual) + 1):
        expected = directed_hausdorff(prompt, visual[order[:count]])
        assert float(found.radius[count]) == float(expected)


def test_many_tokens_take_several_blocks() -> None:
    """More centers than are compared at once, with and without a zero token."""
    tokens = torch.randn(600, 5, generator=torch.Generator().manual_seed(0))
    for zero in (False, True):
        tokens[7] = 0.0 if zero else 1.0
        found = farthest_order(tokens, most=550)
        table = table_of(tokens, tokens)[:, found.order]
        for count in (1, 255, 256, 257, 511, 513, 550):
            radius = float(table[:, :count].amin(1).amax())
            assert float(found.radius[count]) == pytest.approx(radius, abs=1e-6)
            own = table[found.order[:count], :count].fill_diagonal_(math.inf)
            assert float(found.separation[count]) == pytest.approx(float(own.min()), abs=1e-6)


def test_identical_tokens_are_at_no_distance() -> None:
    """Not even a rounding error; that would be a radius for the fit of the dimension."""
    tokens = torch.randn(200_000, 1, 7, generator=torch.Generator().manual_seed(1))
    alone = snap(tokens)
    assert torch.equal(square_distance(alone, alone), torch.zeros(200_000, 1, 1).double())
    few = tokens[:50, 0]
    found = farthest_order(few.repeat(2, 1), most=100)
    assert found.radius[50:].tolist() == [0.0] * 51
    assert float(found.radius[49]) > 0


def test_invalid_input_raises() -> None:
    with pytest.raises(tc.InputError, match="at least 1"):
        farthest_order(torch.eye(3), most=0)
    with pytest.raises(tc.InputError, match="nan"):
        farthest_order(torch.full((2, 2), math.nan), most=2)
    with pytest.raises(tc.InputError, match="empty"):
        prompt_order(torch.empty(0, 2), torch.eye(2), most=2)
