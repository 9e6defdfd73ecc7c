"""Exact distances of a few tokens, to those centres only that estimates leave in question."""

from __future__ import annotations

import math

from torch import Tensor

from tokencover.covering.bounds import Bounds
from tokencover.covering.centers import Centers
from tokencover.covering.estimate import Cloud
from tokencover.covering.exact import Points, distances
from tokencover.covering.workspace import Workspace


def distances_to(
    cloud: Cloud, centers: Centers, points: Points, near: Tensor
) -> tuple[Tensor, Tensor]:
    """Distances of some tokens to some of the centres.

    Parameters
    ----------
    cloud, centers
        One sample.
    points : Points
        The ``m`` tokens.
    near : Tensor
        ``(m, centres)`` bool, which pairs are asked for.

    Returns
    -------
    columns : Tensor
        ``(c,)`` int64, the places of all centres that are near to any of the tokens.
    distance : Tensor
        ``(m, c)`` float64, inf where nobody asked.
    """
    columns = near.any(0).nonzero().squeeze(-1)
    others = cloud.points(centers.tokens[columns], Workspace.of_this_thread("near"))
    distance = distances(points, others)
    return columns, distance.masked_fill_(~near.index_select(1, columns), math.inf)


def nearest_and_mutual(
    cloud: Cloud, centers: Centers, bounds: Bounds, tokens: Tensor
) -> tuple[Tensor, Tensor]:
    """Distances of some tokens to the nearest centre, ``(m,)``, and to each other, ``(m, m)``."""
    cosines = bounds.cosines(tokens)
    near = cosines >= cosines.amax(-1, keepdim=True) - cloud.doubt
    points = cloud.points(tokens, Workspace.of_this_thread("top"))
    _, to_centers = distances_to(cloud, centers, points, near)
    return to_centers.amin(-1), distances(points, points)
