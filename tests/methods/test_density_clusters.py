"""Counts and clusters of recycled tokens."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.methods.slow_sparsevlm import clusters_of, slow_clusters
from tokencover.methods.sparsevlm import (
    RecyclingPlan,
    average_clusters,
    cluster_by_density,
)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("present", [1, 2, 9, 40, 331])
def test_a_plan_leaves_exactly_what_it_should(present: int) -> None:
    for left in range(1, present + 1):
        plan = RecyclingPlan.for_total(left, present)
        assert plan.total == left
        assert plan.kept >= 1
        assert plan.clusters <= plan.recycled <= present - plan.kept
        if left > clusters_of(present) and left < present:
            assert plan.clusters == clusters_of(present - plan.kept)
            assert plan.recycled == int(0.3 * (present - plan.kept)) + 1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("size", "count"), [(1, 1), (5, 1), (12, 2), (31, 4), (20, 20)])
def test_clusters_equal_the_slow_ones(size: int, count: int, seed: int) -> None:
    points = randn(size, 6, seed=seed)
    centers, owner = cluster_by_density(points, count)
    expected = slow_clusters(points, count)
    assert (centers.tolist(), owner.tolist()) == expected
    means = average_clusters(points, owner, count)
    for number in range(count):
        torch.testing.assert_close(means[number], points[owner == number].mean(0))


def test_copies_become_centers_last() -> None:
    points = torch.tensor([[0.0], [0.0], [4.0], [4.0], [9.0], [9.0]])
    centers, owner = cluster_by_density(points, 3)
    assert sorted(centers.tolist()) == [0, 2, 4]
    assert [int(centers[own]) for own in owner] == [0, 0, 2, 2, 4, 4]
    centers, owner = cluster_by_density(torch.zeros(5, 3), 2)
    assert centers.tolist() == [0, 1]
    assert owner.tolist() == [0, 1, 0, 0, 0]


def test_distant_points_keep_their_densities() -> None:
    """exp(-d^2) of these would be 0 for all of them."""
    points = randn(30, 4, seed=3)
    assert cluster_by_density(points * 1000, 3)[1].bincount().sum() == 30
    dense = torch.cat([points[:10] * 20 + 4000, points[10:] * 900])
    assert int(cluster_by_density(dense, 3)[0][0]) < 10


def test_gradients_reach_the_members_of_a_cluster() -> None:
    points = randn(8, 3).requires_grad_()
    _, owner = cluster_by_density(points, 2)
    average_clusters(points, owner, 2)[0].sum().backward()
    assert points.grad is not None
    assert torch.equal(points.grad[:, 0] > 0, owner == 0)


def test_distant_copies_are_not_two_centers() -> None:
    """A few coordinates of real states are thousands of times the others, and nearly the same."""
    once = randn(9, 64, seed=5)
    once[:, 7] += 4000.0
    points = torch.cat([once, once])[torch.randperm(18, generator=torch.Generator().manual_seed(1))]
    centers, owner = cluster_by_density(points, 9)
    assert len(points[centers].unique(dim=0)) == 9
    assert torch.equal(points[centers][owner], points)
