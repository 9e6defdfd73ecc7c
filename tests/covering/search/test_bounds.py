"""Centers, added and cut; lower bounds on the cosine to the nearest one, never above it."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.covering.strategies import token_sets
from tokencover.covering.exact import cosine, snap
from tokencover.covering.search.bounds import Bounds, Centers
from tokencover.covering.search.vectors import CosineEstimates, Vectors


def estimate(tokens: Tensor) -> CosineEstimates:
    return CosineEstimates(Vectors.of("visual", tokens))


def start(tokens: Tensor, places: list[int]) -> tuple[CosineEstimates, Centers, Bounds]:
    estimates = estimate(tokens)
    centers = Centers(estimates, torch.tensor(places), len(tokens))
    return estimates, centers, Bounds(estimates, centers)


@given(token_sets(), st.data())
def test_no_token_is_farther_than_the_bound(tokens: Tensor, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(tokens))))
    first = data.draw(st.integers(1, len(tokens)))
    added = data.draw(st.integers(0, len(tokens) - first))
    estimates, centers, bounds = start(tokens, order[:first])
    centers.add(torch.tensor(order[first : first + added], dtype=torch.int64))
    others = torch.tensor(sorted(order[first + added :]), dtype=torch.int64)
    exact = cosine(snap(tokens[others]), snap(tokens[centers.tokens]))
    nearest = exact.amax(-1)
    assert (bounds._bound[others] <= nearest).all()
    bounds.renew(others, bounds.estimate_nearest(others))
    assert (bounds._bound[others] <= nearest).all()
    assert (bounds._bound[others] >= nearest - 3 * estimates.error).all()
    assert ((bounds.estimate(others) - exact).abs() <= estimates.error).all()


def test_the_smallest_of_those_that_remain() -> None:
    _, _, bounds = start(torch.eye(7), [4])
    bounds.renew(torch.tensor([0, 1, 2, 3, 5, 6]), torch.tensor([0.5, 0.1, 0.6, 0.7, 0.2, 0.8]))
    assert bounds.list_smallest(2).tolist() == [1, 5]
    assert bounds.list_smallest(3).tolist() == [0, 1, 5]
    assert bounds.list_smallest(99).tolist() == [0, 1, 2, 3, 5, 6]


def test_the_smallest_without_some() -> None:
    estimates, _, bounds = start(torch.eye(4), [0])
    bounds.renew(torch.tensor([1, 2, 3]), torch.tensor([0.1, 0.2, 0.3]))
    assert math.isclose(
        bounds.get_smallest_outside(torch.tensor([1])), 0.2 - estimates.error, rel_tol=1e-6
    )
    assert bounds.get_smallest_outside(torch.tensor([1, 2, 3])) == math.inf
    assert bounds.list_smallest(1).tolist() == [1]  # asking changed nothing


def test_restoring_keeps_the_present_centers() -> None:
    _, centers, bounds = start(torch.eye(4), [0])
    before = bounds.copy()
    bounds.renew(torch.tensor([1, 2, 3]), torch.tensor([0.5, 0.5, 0.5]))
    centers.add(torch.tensor([2]))
    bounds.restore(before)
    assert bounds.list_smallest(4).tolist() == [1, 3]
    assert torch.equal(bounds._bound[[1, 3]], before[0][[1, 3]])


@given(token_sets())
def test_estimates_keep_the_promised_error(tokens: Tensor) -> None:
    estimates = estimate(tokens)
    centers = Centers(estimates, torch.arange(len(tokens)), len(tokens))
    off = estimates.estimate(centers.rows) - cosine(snap(tokens), snap(tokens))
    assert off.abs().max() <= estimates.error


@pytest.mark.parametrize("kind", ["gaussian", "positive", "one large"])
def test_bound_error_many_dimensions_holds(kind: str) -> None:
    tokens = torch.randn(40, 4096, generator=torch.Generator().manual_seed(1))
    if kind == "positive":
        tokens = tokens.abs()
    if kind == "one large":
        tokens[:, 0] = 1e4
    estimates = estimate(tokens)
    centers = Centers(estimates, torch.arange(40), 40)
    off = estimates.estimate(centers.rows) - cosine(snap(tokens), snap(tokens))
    assert off.abs().max() <= estimates.error


def test_cutting_some_and_adding_others() -> None:
    tokens = torch.randn(9, 5, generator=torch.Generator().manual_seed(0))
    centers = Centers(estimate(tokens), torch.tensor([8, 2, 5, 0]), 6)
    centers.cut(2)
    centers.add(torch.tensor([1, 7, 3]))
    assert len(centers) == 5
    assert centers.tokens.tolist() == [8, 2, 1, 7, 3]
    unit = torch.nn.functional.normalize(tokens[centers.tokens], dim=-1)
    torch.testing.assert_close(centers.rows, unit)
