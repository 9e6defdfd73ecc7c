"""Centres kept in float32 lose nothing, and their estimates keep the promised error."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from torch import Tensor

from tests.covering.strategies import token_sets
from tokencover.covering.centers import Centers
from tokencover.covering.estimate import Cloud
from tokencover.covering.exact import Points, cosine, snap
from tokencover.covering.workspace import Workspace


def exact_form(centers: Centers, places: Tensor) -> Points:
    grid = torch.empty(len(places), centers.directions.shape[1], dtype=torch.float64)
    return centers.points(places, Workspace(), grid)


def same(found: Points, expected: Points) -> bool:
    return torch.equal(found.grid, expected.grid) and torch.equal(found.square, expected.square)


@given(token_sets())
def test_the_exact_form_survives(tokens: Tensor) -> None:
    everyone = torch.arange(len(tokens))
    centers = Centers.of(Cloud.of("visual", tokens), everyone, len(tokens))
    assert same(exact_form(centers, everyone), snap(tokens))


@pytest.mark.parametrize("width", [1, 300, 4096])
def test_the_exact_form_survives_in_many_dimensions(width: int) -> None:
    tokens = torch.randn(150, width, generator=torch.Generator().manual_seed(width))
    tokens[3], tokens[4] = 0.0, torch.eye(width)[0]  # 2**24 is the largest coordinate there is
    everyone = torch.arange(150)
    centers = Centers.of(Cloud.of("visual", tokens), everyone, 150)
    assert same(exact_form(centers, everyone), snap(tokens))


@given(token_sets())
def test_estimates_keep_the_promised_error(tokens: Tensor) -> None:
    cloud = Cloud.of("visual", tokens)
    centers = Centers.of(cloud, torch.arange(len(tokens)), len(tokens))
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
    centers = Centers.of(cloud, torch.arange(40), 40)
    off = cloud.cosines(centers.directions) - cosine(snap(tokens), snap(tokens))
    assert off.abs().max() <= cloud.error


def test_keeping_some_and_adding_others() -> None:
    tokens = torch.randn(9, 5, generator=torch.Generator().manual_seed(0))
    cloud = Cloud.of("visual", tokens)
    centers = Centers.of(cloud, torch.tensor([8, 2, 5, 0]), 6)
    centers.keep(torch.tensor([2, 0]))
    more = torch.tensor([1, 7, 3])
    centers.add(more, cloud.points(more))
    assert centers.tokens.tolist() == [5, 8, 1, 7, 3]
    assert same(exact_form(centers, torch.arange(5)), snap(tokens[centers.tokens]))
    assert same(exact_form(centers, torch.tensor([3, 1])), snap(tokens[[7, 8]]))
