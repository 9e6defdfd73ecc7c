"""Centres, added and cut; lower bounds on the cosine to the nearest one, never above the truth."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.covering.strategies import token_sets
from tokencover.covering.exact import cosine, snap
from tokencover.covering.search.estimate import Bounds, Centers, Cloud


def start(tokens: Tensor, places: list[int]) -> tuple[Cloud, Centers, Bounds]:
    cloud = Cloud.of("visual", tokens)
    centers = Centers(cloud, torch.tensor(places), len(tokens))
    return cloud, centers, Bounds(cloud, centers)


@given(token_sets(), st.data())
def test_no_token_is_farther_than_the_bound(tokens: Tensor, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(tokens))))
    first = data.draw(st.integers(1, len(tokens)))
    added = data.draw(st.integers(0, len(tokens) - first))
    cloud, centers, bounds = start(tokens, order[:first])
    centers.add(torch.tensor(order[first : first + added], dtype=torch.int64))
    others = torch.tensor(sorted(order[first + added :]), dtype=torch.int64)
    exact = cosine(snap(tokens[others]), snap(tokens[centers.tokens]))
    nearest = exact.amax(-1)
    assert (bounds._bound[others] <= nearest).all()
    bounds.renew(others, bounds.estimate_nearest(others))
    assert (bounds._bound[others] <= nearest).all()
    assert (bounds._bound[others] >= nearest - 3 * cloud.error).all()
    assert ((bounds.estimate_cosines(others) - exact).abs() <= cloud.error).all()


def test_the_smallest_of_those_that_are_left() -> None:
    _, _, bounds = start(torch.eye(7), [4])
    bounds.renew(torch.tensor([0, 1, 2, 3, 5, 6]), torch.tensor([0.5, 0.1, 0.6, 0.7, 0.2, 0.8]))
    assert bounds.find_smallest(2).tolist() == [1, 5]
    assert bounds.find_smallest(3).tolist() == [0, 1, 5]
    assert bounds.find_smallest(99).tolist() == [0, 1, 2, 3, 5, 6]


def test_the_smallest_without_some() -> None:
    cloud, _, bounds = start(torch.eye(4), [0])
    bounds.renew(torch.tensor([1, 2, 3]), torch.tensor([0.1, 0.2, 0.3]))
    assert math.isclose(
        bounds.find_smallest_without(torch.tensor([1])), 0.2 - cloud.error, rel_tol=1e-6
    )
    assert bounds.find_smallest_without(torch.tensor([1, 2, 3])) == math.inf
    assert bounds.find_smallest(1).tolist() == [1]  # asking changed nothing


def test_going_back_keeps_the_centers_of_today() -> None:
    _, centers, bounds = start(torch.eye(4), [0])
    before = bounds.copy()
    bounds.renew(torch.tensor([1, 2, 3]), torch.tensor([0.5, 0.5, 0.5]))
    centers.add(torch.tensor([2]))
    bounds.restore(before)
    assert bounds.find_smallest(4).tolist() == [1, 3]
    assert torch.equal(bounds._bound[[1, 3]], before[0][[1, 3]])


@given(token_sets())
def test_estimates_keep_the_promised_error(tokens: Tensor) -> None:
    cloud = Cloud.of("visual", tokens)
    centers = Centers(cloud, torch.arange(len(tokens)), len(tokens))
    off = cloud.estimate_cosines(centers.directions) - cosine(snap(tokens), snap(tokens))
    assert off.abs().max() <= cloud.error


@pytest.mark.parametrize("kind", ["gaussian", "positive", "one large"])
def test_estimates_keep_the_promised_error_in_many_dimensions(kind: str) -> None:
    tokens = torch.randn(40, 4096, generator=torch.Generator().manual_seed(1))
    if kind == "positive":
        tokens = tokens.abs()
    if kind == "one large":
        tokens[:, 0] = 1e4
    cloud = Cloud.of("visual", tokens)
    centers = Centers(cloud, torch.arange(40), 40)
    off = cloud.estimate_cosines(centers.directions) - cosine(snap(tokens), snap(tokens))
    assert off.abs().max() <= cloud.error


def test_cutting_some_and_adding_others() -> None:
    tokens = torch.randn(9, 5, generator=torch.Generator().manual_seed(0))
    centers = Centers(Cloud.of("visual", tokens), torch.tensor([8, 2, 5, 0]), 6)
    centers.cut(2)
    centers.add(torch.tensor([1, 7, 3]))
    assert len(centers) == 5
    assert centers.tokens.tolist() == [8, 2, 1, 7, 3]
    unit = torch.nn.functional.normalize(tokens[centers.tokens], dim=-1)
    torch.testing.assert_close(centers.directions, unit)
