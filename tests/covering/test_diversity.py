"""All pairs, each multiplied once; and the token farthest from its nearest neighbor."""

from __future__ import annotations

from unittest.mock import patch

import torch
from hypothesis import given, settings
from torch import Tensor

from tests.covering import oracle
from tests.covering.search.wrong_estimates import disturb_estimates
from tests.covering.strategies import token_sets
from tests.covering.together.on_accelerator import pretend_accelerator
from tokencover.covering import (
    compute_pairwise_cosines,
    cosine,
    select_most_isolated,
    tuning,
)
from tokencover.covering import snap as snap_tokens


def select_slowly(tokens: Tensor) -> int:
    table = oracle.cosines(tokens.numpy(), tokens.numpy())
    count = len(tokens)
    nearest = [
        max((table[i, j] for j in range(count) if j != i), default=-float("inf"))
        for i in range(count)
    ]
    return min(range(count), key=lambda place: (nearest[place], place))


@settings(max_examples=80)
@given(token_sets())
def test_equals_the_oracle(tokens: Tensor) -> None:
    for size in (3, 512):
        with patch.object(tuning, "DIVERSE_BLOCK", size):
            assert select_most_isolated(tokens).tolist() == [select_slowly(tokens)]
    with disturb_estimates(0.3):
        assert select_most_isolated(tokens).tolist() == [select_slowly(tokens)]
    with pretend_accelerator():
        assert select_most_isolated(tokens).tolist() == [select_slowly(tokens)]


@given(token_sets())
def test_mutual_cosines_are_the_cosines(tokens: Tensor) -> None:
    points = snap_tokens(tokens)
    for size in (1, 4, 384):
        with patch.object(tuning, "PAIR_BLOCK", size):
            assert torch.equal(compute_pairwise_cosines(points), cosine(points, points))
