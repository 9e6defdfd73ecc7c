"""Finer estimates around centers: as close as they say, taken where they help, the same indices."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import tokencover as tc
from tests.covering import oracle
from tests.covering.search.wrong_estimates import disturb_estimates
from tokencover.covering import tuning
from tokencover.covering.exact import distances
from tokencover.covering.search import search
from tokencover.covering.search.bounds import Bounds, Centers
from tokencover.covering.search.exact_rounds import ExactRounds
from tokencover.covering.search.local import LocalEstimates, refine
from tokencover.covering.search.vectors import CosineEstimates, Vectors


def draw_clusters(homes: int, spread: float, seed: int, count: int = 60, width: int = 24) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(homes, width, generator=generator)
    around = torch.randn(count, width, generator=generator)
    return centers[torch.arange(count) % homes] + spread * around


def estimate_locally(tokens: Tensor, start: list[int]) -> LocalEstimates | None:
    estimates = CosineEstimates(Vectors.of("visual", tokens))
    centers = Centers(estimates, torch.tensor(start), len(start))
    refined = refine(centers, Bounds(estimates, centers))
    return None if refined is None else refined[0]


@pytest.mark.parametrize("spread", [3e-2, 1e-3, 1e-5])
@pytest.mark.parametrize("width", [24, 256])
def test_distances_are_as_close_as_they_say(spread: float, width: int) -> None:
    tokens = draw_clusters(4, spread, seed=1, width=width)
    local = estimate_locally(tokens, [0, 1, 2, 3])
    assert local is not None
    everyone = torch.arange(len(tokens))
    estimated = -local.estimate(local.get_rows(everyone)).double()
    exact = distances(local.vectors.snap(), local.vectors.snap())
    together = local.home.unsqueeze(0) == local.home.unsqueeze(1)
    assert float((estimated - exact)[together].abs().max()) <= local.error
    assert local.error < CosineEstimates(local.vectors).error / 4
    assert float(estimated[~together].min()) > float(exact[together].max())


@pytest.mark.parametrize(
    ("homes", "spread", "start"),
    [(4, 0.5, [0, 1, 2, 3]), (4, 1e-3, [0, 1, 2])],
    ids=["too wide", "a cluster without a center"],
)
def test_local_estimates_without_proof_none(homes: int, spread: float, start: list[int]) -> None:
    assert estimate_locally(draw_clusters(homes, spread, seed=2), start) is None


def test_neighborhoods_that_touch_are_rejected() -> None:
    angle = torch.linspace(0, 0.6, 60)
    arc = torch.stack([angle.cos(), angle.sin()], dim=-1)
    assert estimate_locally(arc, list(range(0, 60, 4))) is None


@settings(max_examples=40)
@given(st.data())
def test_equals_the_oracle(data: st.DataObject) -> None:
    spread = data.draw(st.sampled_from([3e-2, 1e-3, 1e-5, 3e-7]))
    tokens = draw_clusters(data.draw(st.integers(1, 5)), spread, data.draw(st.integers(0, 99)), 25)
    start = sorted(data.draw(st.sets(st.integers(0, 24), min_size=1, max_size=6)))
    count = data.draw(st.integers(1, len(tokens) - len(start)))
    few = data.draw(st.sampled_from([2, 64]))
    noise = data.draw(st.sampled_from([0.0, 1e-3]))
    decided = data.draw(st.sampled_from([0, 2]))
    with (
        patch.multiple(
            tuning,
            POOL_MIN=few,
            POOL_START=few,
            DECIDED_FRACTION=decided,
            MIN_GAIN=0.0,
            LOCAL_PAIRS=data.draw(st.sampled_from([0, 2**14])),
        ),
        disturb_estimates(noise),
    ):
        found = tc.farthest_points(tokens, budget=count, start=torch.tensor(start)).tolist()
    assert found == oracle.choose_farthest(tokens.numpy(), start, count)


@pytest.mark.parametrize("spread", [2e-2, 1e-3])
def test_blurred_clusters_need_no_exact_rounds(spread: float) -> None:
    tokens = draw_clusters(5, spread, seed=3, count=600, width=128)
    with (
        patch.object(search, "ExactRounds", wraps=ExactRounds) as rounds,
        patch.object(search, "refine", wraps=refine) as refined,
    ):
        tc.farthest_points(tokens, budget=150, start=torch.arange(5))
    assert refined.call_count == 1
    assert rounds.call_count == 0
