"""The float32 estimates keep the error they promise."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from torch import Tensor

from tests.covering.strategies import token_sets
from tokencover.covering.exact import cosine, snap
from tokencover.covering.search.vectors import CosineEstimates, Vectors


def worst(tokens: Tensor) -> tuple[float, float]:
    vectors = Vectors.of("visual", tokens)
    estimates = CosineEstimates(vectors)
    estimate = estimates.estimate(vectors.get_directions())
    return float((estimate - cosine(snap(tokens), snap(tokens))).abs().max()), estimates.error


@given(token_sets())
def test_on_small_sets(tokens: Tensor) -> None:
    found, promised = worst(tokens)
    assert found <= promised


@pytest.mark.parametrize("width", [1, 255, 1024, 1025, 5000])
@pytest.mark.parametrize("kind", ["gaussian", "positive", "one large", "huge", "tiny"])
def test_on_wide_tokens(width: int, kind: str) -> None:
    tokens = torch.randn(40, width, generator=torch.Generator().manual_seed(width))
    if kind == "positive":
        tokens = tokens.abs()  # all products add up in one direction
    if kind == "one large":
        tokens[:, 0] = 1e4  # as in the massive activations of language models
    if kind == "huge":
        tokens *= 1e37
    if kind == "tiny":
        tokens *= 1e-37
    found, promised = worst(tokens)
    assert found <= promised < 2e-4


def test_identical_tokens_have_cosine_one() -> None:
    tokens = torch.randn(30, 777, generator=torch.Generator().manual_seed(0)).repeat(2, 1)
    exact = cosine(snap(tokens), snap(tokens))
    assert torch.equal(exact.diagonal(30), torch.ones(30, dtype=torch.float64))


def test_exact_cosines_any_summation_order_equal() -> None:
    generator = torch.Generator().manual_seed(0)
    points = snap(torch.randn(20, 3000, generator=generator))
    shuffle = torch.randperm(3000, generator=generator)
    products = points.grid @ points.grid.T
    assert torch.equal(products, points.grid[:, shuffle] @ points.grid[:, shuffle].T)
    one_by_one = torch.stack([(points.grid * row).sum(1) for row in points.grid])
    assert torch.equal(products, one_by_one)
