"""The search by estimates: right in small rounds, with wrong estimates, and after wrong guesses."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import tokencover as tc
from tests.covering import oracle
from tests.covering.search.wrong_estimates import disturb_estimates
from tests.covering.strategies import token_sets
from tokencover.covering import tuning
from tokencover.covering.search import search
from tokencover.covering.search.search import Candidate, find_first_mistake


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 3, 4), (4, 4, 64)])
@pytest.mark.parametrize("max_rivals", [0, 2, 99])  # 0: exact rounds only
@given(token_sets(), st.data())
def test_many_small_rounds_equal_the_oracle(
    sizes: tuple[int, int, int], max_rivals: int, visual: Tensor, data: st.DataObject
) -> None:
    start = data.draw(st.sets(st.integers(0, len(visual) - 1), max_size=4))
    count = data.draw(st.integers(0, len(visual) - len(start)))
    centers = torch.tensor(sorted(start), dtype=torch.int64)
    fewest, few, many = sizes
    with patch.multiple(
        tuning, POOL_MIN=fewest, POOL_START=few, POOL_MAX=many, MAX_RIVALS=max_rivals
    ):
        found = tc.farthest_points(visual, budget=count, start=centers).tolist()
    assert found == oracle.choose_farthest(visual.numpy(), sorted(start), count)


@pytest.mark.parametrize("few", [3, 64])
@pytest.mark.parametrize("mistakes", [0, 99])
@given(token_sets(), st.data())
def test_disturbed_estimates_within_bound_equal_oracle(
    few: int, mistakes: int, visual: Tensor, data: st.DataObject
) -> None:
    start = data.draw(st.sets(st.integers(0, len(visual) - 1), max_size=4))
    count = data.draw(st.integers(0, len(visual) - len(start)))
    noise = data.draw(st.sampled_from([1e-3, 0.1, 0.5]))
    centers = torch.tensor(sorted(start), dtype=torch.int64)
    with (
        disturb_estimates(noise),
        patch.multiple(tuning, POOL_MIN=few, POOL_START=few, MAX_MISTAKES=mistakes),
    ):
        found = tc.farthest_points(visual, budget=count, start=centers).tolist()
    assert found == oracle.choose_farthest(visual.numpy(), sorted(start), count)


def test_wrong_guesses_are_found_and_corrected() -> None:
    visual = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))
    expected = tc.farthest_points(visual, budget=50).tolist()
    mistakes: list[Candidate | None] = []

    def watched(*arguments: Any) -> Candidate | None:
        mistakes.append(find_first_mistake(*arguments))
        return mistakes[-1]

    with disturb_estimates(0.05), patch.object(search, "find_first_mistake", watched):
        assert tc.farthest_points(visual, budget=50).tolist() == expected
    assert any(mistake is not None for mistake in mistakes)
