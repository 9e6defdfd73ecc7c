"""Were the centres chosen rightly? Exact distances where estimates could not tell."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from tokencover.covering.exact import Points, distances
from tokencover.covering.lazy.estimate import Bounds, Centers, Cloud, Workspace


class Candidate(NamedTuple):
    """A token that may be the right choice for the centre at `place`."""

    place: int
    token: int


def find_first_mistake(
    cloud: Cloud, centers: Centers, bounds: Bounds, doubts: list[Candidate]
) -> Candidate | None:
    """What should have been chosen where first something else was; None if all is right.

    Right is the token farthest from all centres before it, by the tie rule of `exact.py`.

    Parameters
    ----------
    cloud, centers, bounds
        One sample, with the centres that are in question.
    doubts : list of Candidate
        By rising place; for each centre in doubt, itself and all its rivals.
    """
    farthest: dict[int, tuple[float, int]] = {}
    distances = _measure_doubts(cloud, centers, bounds, doubts) if doubts else []
    for (place, token), distance in zip(doubts, distances, strict=True):
        candidate = (-distance, token)  # the smallest: farthest, then lowest index
        farthest[place] = min(farthest.get(place, candidate), candidate)
    chosen = centers.tokens.tolist()
    for place, (_, token) in farthest.items():
        if chosen[place] != token:
            return Candidate(place, token)
    return None


def _measure_doubts(
    cloud: Cloud, centers: Centers, bounds: Bounds, doubts: list[Candidate]
) -> list[float]:
    """For each doubt the token's exact distance to the nearest of the centres before it."""
    places, names = torch.tensor(doubts).T.contiguous()
    tokens, row = names.unique(return_inverse=True)
    near = _find_possible_nearest(bounds.estimate_cosines(tokens), places, row, cloud.doubt)
    points = cloud.snap(tokens, Workspace.of_this_thread("top"))
    columns, distance = measure_distances(cloud, centers, points, near)
    column = torch.searchsorted(columns, places) - 1  # the last one before the centre in doubt
    exact: list[float] = distance.cummin(-1).values[row, column].tolist()
    return exact


def _find_possible_nearest(cosines: Tensor, places: Tensor, row: Tensor, doubt: float) -> Tensor:
    """Which centres may be nearest to which tokens while these are in doubt.

    Parameters
    ----------
    cosines : Tensor
        ``(tokens, centres)``, estimates.
    places, row : Tensor
        ``(doubts,)`` int64: the centre in doubt, and the row of the token.
    doubt : float
        Cosines that differ by no more may be in any order.
    """
    spans = torch.zeros(len(cosines), dtype=torch.int64)
    first = spans.scatter_reduce(0, row, places, "amin", include_self=False).unsqueeze(-1)
    last = spans.scatter_reduce(0, row, places, "amax", include_self=False).unsqueeze(-1)
    # A centre that is not nearest when it is added, or when the first doubt arises, never will be.
    nearest_yet = cosines.cummax(-1).values
    nearest_yet = torch.maximum(nearest_yet, nearest_yet.gather(1, first - 1))
    return (cosines >= nearest_yet - doubt) & (torch.arange(cosines.shape[1]) < last)


def measure_distances(
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
        ``(m, c)`` float64, inf where not asked for.
    """
    columns = near.any(0).nonzero().squeeze(-1)
    others = cloud.snap(centers.tokens[columns], Workspace.of_this_thread("near"))
    distance = distances(points, others)
    return columns, distance.masked_fill_(~near.index_select(1, columns), math.inf)


def measure_nearest_and_mutual(
    cloud: Cloud, centers: Centers, bounds: Bounds, tokens: Tensor
) -> tuple[Tensor, Tensor]:
    """Distances of some tokens to the nearest centre, ``(m,)``, and to each other, ``(m, m)``."""
    cosines = bounds.estimate_cosines(tokens)
    near = cosines >= cosines.amax(-1, keepdim=True) - cloud.doubt
    points = cloud.snap(tokens, Workspace.of_this_thread("top"))
    _, to_centers = measure_distances(cloud, centers, points, near)
    return to_centers.amin(-1), distances(points, points)
