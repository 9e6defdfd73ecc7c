"""Lower bounds on the cosine to the nearest centre: never above the truth."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.covering.strategies import token_sets
from tokencover.covering.bounds import Bounds
from tokencover.covering.centers import Centers
from tokencover.covering.estimate import Cloud
from tokencover.covering.exact import cosine, snap


def start(tokens: Tensor, places: list[int]) -> tuple[Cloud, Centers, Bounds]:
    cloud = Cloud.of("visual", tokens)
    centers = Centers(cloud, torch.tensor(places), len(tokens))
    return cloud, centers, Bounds(cloud, centers)


@given(token_sets(), st.data())
def test_nobody_is_farther_than_the_bound(tokens: Tensor, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(tokens))))
    first = data.draw(st.integers(1, len(tokens)))
    added = data.draw(st.integers(0, len(tokens) - first))
    cloud, centers, bounds = start(tokens, order[:first])
    centers.add(torch.tensor(order[first : first + added], dtype=torch.int64))
    others = torch.tensor(sorted(order[first + added :]), dtype=torch.int64)
    exact = cosine(snap(tokens[others]), snap(tokens[centers.tokens]))
    nearest = exact.amax(-1)
    assert (bounds._bound[others] <= nearest).all()
    bounds.renew(others, bounds.nearest(others))
    assert (bounds._bound[others] <= nearest).all()
    assert (bounds._bound[others] >= nearest - 3 * cloud.error).all()
    assert ((bounds.cosines(others) - exact).abs() <= cloud.error).all()


def test_the_smallest_of_those_that_are_left() -> None:
    _, _, bounds = start(torch.eye(7), [4])
    bounds.renew(torch.tensor([0, 1, 2, 3, 5, 6]), torch.tensor([0.5, 0.1, 0.6, 0.7, 0.2, 0.8]))
    assert bounds.smallest(2).tolist() == [1, 5]
    assert bounds.smallest(3).tolist() == [0, 1, 5]
    assert bounds.smallest(99).tolist() == [0, 1, 2, 3, 5, 6]


def test_the_smallest_without_some() -> None:
    cloud, _, bounds = start(torch.eye(4), [0])
    bounds.renew(torch.tensor([1, 2, 3]), torch.tensor([0.1, 0.2, 0.3]))
    assert math.isclose(bounds.smallest_without(torch.tensor([1])), 0.2 - cloud.error, rel_tol=1e-6)
    assert bounds.smallest_without(torch.tensor([1, 2, 3])) == math.inf
    assert bounds.smallest(1).tolist() == [1]  # asking changed nothing


def test_going_back_keeps_the_centers_of_today() -> None:
    _, centers, bounds = start(torch.eye(4), [0])
    before = bounds.copy()
    bounds.renew(torch.tensor([1, 2, 3]), torch.tensor([0.5, 0.5, 0.5]))
    centers.add(torch.tensor([2]))
    bounds.restore(before)
    assert bounds.smallest(4).tolist() == [1, 3]
    assert torch.equal(bounds._bound[[1, 3]], before[[1, 3]])
