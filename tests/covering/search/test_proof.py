"""Exact distances find the first wrong center, and what should have been there."""

from __future__ import annotations

import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from tests.covering import oracle
from tests.covering.strategies import token_sets
from tokencover.covering.search.bounds import Bounds, Centers
from tokencover.covering.search.search import Candidate, find_first_mistake
from tokencover.covering.search.vectors import CosineEstimates, Vectors


def check(tokens: Tensor, order: list[int], before: int) -> Candidate | None:
    """Check every center from `before` on, with every remaining token as a rival."""
    estimates = CosineEstimates(Vectors.of("visual", tokens))
    centers = Centers(estimates, torch.tensor(order[:before]), len(order))
    bounds = Bounds(estimates, centers)
    centers.add(torch.tensor(order[before:], dtype=torch.int64))
    candidates = [
        Candidate(place, token)
        for place in range(before, len(order))
        for token in range(len(tokens))
        if token not in order[:place]
    ]
    return find_first_mistake(centers, bounds, candidates)


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


def test_without_candidates_there_is_no_mistake() -> None:
    estimates = CosineEstimates(Vectors.of("visual", torch.eye(3)))
    centers = Centers(estimates, torch.tensor([0, 1]), 2)
    assert find_first_mistake(centers, Bounds(estimates, centers), []) is None
