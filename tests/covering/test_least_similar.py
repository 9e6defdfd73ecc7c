"""Pivots take the tokens least similar to them: against exact cosines in plain Python."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tokencover.covering import cosine, select_least_similar, snap
from tokencover.errors import InputError


def slow(tokens: Tensor, own: list[int], others: Tensor, shares: list[int]) -> list[list[int]]:
    """What each pivot takes, ascending."""
    pivots = torch.cat([tokens[own], others])
    table = cosine(snap(pivots.float()), snap(tokens.float())).tolist()
    free = [token for token in range(len(tokens)) if token not in own]
    taken = []
    for row, share in zip(table, shares, strict=True):
        picks = sorted(free, key=lambda token: (row[token], token))[:share]
        free = [token for token in free if token not in picks]
        taken.append(sorted(picks))
    return taken


@given(st.integers(1, 40), st.integers(0, 3), st.integers(0, 4), st.booleans(), st.data())
def test_it_is_the_slow_loop(
    count: int, own: int, words: int, close: bool, data: st.DataObject
) -> None:
    """Copies, zero rows and tokens too close for estimates included; also when tokens run out."""
    make = torch.Generator().manual_seed(data.draw(st.integers(0, 10**6)))
    kinds = torch.randn(5, 16, generator=make)
    tokens = kinds[torch.randint(5, (count,), generator=make)]
    if close:
        tokens = kinds[0] + 1e-7 * torch.randn(count, 16, generator=make)
    tokens[torch.rand(count, generator=make) < 0.1] = 0.0
    mine = torch.randperm(count, generator=make)[:own]
    others = torch.randn(words, 16, generator=make)
    shares = [data.draw(st.integers(0, 6)) for _ in range(len(mine) + words)]
    found = select_least_similar(tokens, mine, others, shares).tolist()
    expected = slow(tokens, mine.tolist(), others, shares)
    assert found == [token for picks in expected for token in picks]


def test_rivals_at_turn_end_decided_exactly() -> None:
    """Two tokens closer than estimates see, among many that are not."""
    make = torch.Generator().manual_seed(1)
    tokens = torch.randn(400, 64, generator=make)
    row = cosine(snap(tokens[:1]), snap(tokens))[0]
    last = int(row.argsort()[20])
    tokens[7] = tokens[last] + 1e-6 * torch.randn(64, generator=make)
    for share in (20, 21, 22):
        found = select_least_similar(tokens, torch.tensor([0]), tokens[:0], [share])
        assert found.tolist() == slow(tokens, [0], tokens[:0], [share])[0]


def test_half_precision_is_the_same_numbers() -> None:
    tokens = torch.randn(30, 8, generator=torch.Generator().manual_seed(2)).bfloat16()
    arguments = torch.tensor([3]), tokens[4:6].clone(), [4, 3, 2]
    found = select_least_similar(tokens, *arguments)
    own, others, shares = arguments
    assert torch.equal(found, select_least_similar(tokens.float(), own, others.float(), shares))


@pytest.mark.parametrize("name", ["visual", "pivots"])
def test_nan_raises(name: str) -> None:
    tokens, others = torch.ones(4, 3), torch.ones(2, 3)
    (tokens if name == "visual" else others)[1, 2] = math.nan
    with pytest.raises(InputError, match=rf"{name} holds nan at \[1, 2\]"):
        select_least_similar(tokens, torch.tensor([0]), others, [1, 1, 1])
