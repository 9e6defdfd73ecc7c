"""Upper bounds on distances: never below the truth, and asked in a well-defined order."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.covering.strategies import token_sets
from tokencover.covering.bounds import Bounds
from tokencover.covering.centers import Centers
from tokencover.covering.estimate import Cloud
from tokencover.covering.exact import distance_to_nearest, snap


def start(tokens: Tensor, places: list[int]) -> tuple[Cloud, Centers, Bounds]:
    cloud = Cloud.of("visual", tokens)
    centers = Centers.of(cloud, torch.tensor(places), len(tokens))
    return cloud, centers, Bounds(cloud, centers)


@given(token_sets(), st.data())
def test_nobody_is_farther_than_the_bound(tokens: Tensor, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(tokens))))
    first = data.draw(st.integers(1, len(tokens)))
    added = data.draw(st.integers(0, len(tokens) - first))
    cloud, centers, bounds = start(tokens, order[:first])
    if added:
        more = torch.tensor(order[first : first + added])
        bounds.take_out(more)
        centers.add(more, cloud.points(more))
    others = order[first + added :]
    points = snap(tokens)
    distance = distance_to_nearest(points, points[centers.tokens])
    assert all(bounds._bound[token] >= distance[token] for token in others)
    if others:
        bounds.renew(torch.tensor(others))
        assert all(bounds._bound[token] >= distance[token] for token in others)
        assert all(bounds._bound[token] <= distance[token] + 3 * cloud.error for token in others)


def test_the_largest_come_first_and_the_lowest_index_among_equals() -> None:
    _, _, bounds = start(torch.eye(7), [4])
    bounds.put_back(torch.arange(4), torch.tensor([0.5, 0.9, 0.5, 0.5], dtype=torch.float64))
    bounds.put_back(torch.tensor([5, 6]), torch.tensor([0.7, 0.5], dtype=torch.float64))
    assert bounds.largest(2).tolist() == [1, 5]
    assert bounds.largest(4).tolist() == [0, 1, 2, 5]
    assert bounds.largest(99).tolist() == [0, 1, 2, 3, 5, 6]
    assert bounds.take_out(torch.tensor([1, 5])) == (-0.5, 0)
    assert bounds.take_out(torch.tensor([0, 2])) == (-0.5, 3)


def test_the_last_one_leaves_nobody_outside() -> None:
    _, _, bounds = start(torch.eye(2), [0])
    assert bounds.take_out(torch.tensor([1]))[0] == float("inf")
