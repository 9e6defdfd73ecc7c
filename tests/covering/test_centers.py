"""Centres: added, cut, and estimates to them within the promised error."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from torch import Tensor

from tests.covering.strategies import token_sets
from tokencover.covering.centers import Centers
from tokencover.covering.estimate import Cloud
from tokencover.covering.exact import cosine, snap


@given(token_sets())
def test_estimates_keep_the_promised_error(tokens: Tensor) -> None:
    cloud = Cloud.of("visual", tokens)
    centers = Centers(cloud, torch.arange(len(tokens)), len(tokens))
    off = cloud.cosines(centers.directions) - cosine(snap(tokens), snap(tokens))
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
    off = cloud.cosines(centers.directions) - cosine(snap(tokens), snap(tokens))
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
