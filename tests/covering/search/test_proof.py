"""Exact distances find the first wrong centre, and what should have been there."""

from __future__ import annotations

import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from tests.covering import oracle
from tests.covering.strategies import token_sets
from tokencover.covering.search.estimate import Bounds, Centers, Cloud
from tokencover.covering.search.search import Candidate, find_first_mistake


def check(tokens: Tensor, order: list[int], before: int) -> Candidate | None:
    """Doubt every centre from `before` on, with every token that is left as a rival."""
    cloud = Cloud.of("visual", tokens)
    centers = Centers(cloud, torch.tensor(order[:before]), len(order))
    bounds = Bounds(cloud, centers)
    centers.add(torch.tensor(order[before:], dtype=torch.int64))
    doubts = [
        Candidate(place, token)
        for place in range(before, len(order))
        for token in range(len(tokens))
        if token not in order[:place]
    ]
    return find_first_mistake(cloud, centers, bounds, doubts)


@given(token_sets(), st.data())
def test_the_right_order_is_right(tokens: Tensor, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(tokens) - 1))
    order = [start, *oracle.choose_farthest(tokens.numpy(), [start], len(tokens) - 1)]
    assert check(tokens, order, data.draw(st.integers(1, len(tokens)))) is None


@given(token_sets(), st.data())
def test_the_first_wrong_center_is_found(tokens: Tensor, data: st.DataObject) -> None:
    assume(len(tokens) > 2)
    start = data.draw(st.integers(0, len(tokens) - 1))
    order = [start, *oracle.choose_farthest(tokens.numpy(), [start], len(tokens) - 1)]
    place = data.draw(st.integers(1, len(tokens) - 2))
    other = data.draw(st.integers(place + 1, len(tokens) - 1))
    right = order[place]
    order[place], order[other] = order[other], order[place]
    assert check(tokens, order, 1) == (place, right)


def test_no_doubt_no_mistake() -> None:
    cloud = Cloud.of("visual", torch.eye(3))
    centers = Centers(cloud, torch.tensor([0, 1]), 2)
    assert find_first_mistake(cloud, centers, Bounds(cloud, centers), []) is None
