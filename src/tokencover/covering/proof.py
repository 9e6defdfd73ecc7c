"""Were the centres chosen rightly? Exact distances where estimates could not tell."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tokencover.covering.bounds import Bounds
from tokencover.covering.centers import Centers
from tokencover.covering.estimate import Cloud
from tokencover.covering.guess import Step
from tokencover.covering.near_distances import distances_to
from tokencover.covering.workspace import Workspace


class Candidate(NamedTuple):
    """A token that may be the right choice for the centre at `place`."""

    place: int
    token: int


def candidates(steps: list[Step], tokens: list[int], before: int) -> list[Candidate]:
    """All that came into question where a guess (`guess.py`) was in doubt.

    Parameters
    ----------
    steps : list of Step
        The guess.
    tokens : list of int
        What its places mean.
    before : int
        How many centres there were.
    """
    return [
        Candidate(place, tokens[rival])
        for place, step in enumerate(steps, before)
        if len(step) > 1
        for rival in step
    ]


def first_mistake(
    cloud: Cloud, centers: Centers, bounds: Bounds, doubts: list[Candidate]
) -> Candidate | None:
    """What should have been chosen where first something else was; None if all is right.

    Right is the token farthest from all centres before it, the lowest index among equals.

    Parameters
    ----------
    cloud, centers, bounds
        One sample, with the centres that are in question.
    doubts : list of Candidate
        By rising place; for each centre in doubt, itself and all its rivals.
    """
    farthest: dict[int, tuple[float, int]] = {}
    distances = _distances(cloud, centers, bounds, doubts) if doubts else []
    for (place, token), distance in zip(doubts, distances, strict=True):
        candidate = (-distance, token)
        farthest[place] = min(farthest.get(place, candidate), candidate)
    chosen = centers.tokens.tolist()
    for place, (_, token) in farthest.items():
        if chosen[place] != token:
            return Candidate(place, token)
    return None


def _distances(
    cloud: Cloud, centers: Centers, bounds: Bounds, doubts: list[Candidate]
) -> list[float]:
    """For each doubt the token's exact distance to the nearest of the centres before it."""
    places, names = torch.tensor(doubts).T.contiguous()
    tokens, row = names.unique(return_inverse=True)
    near = _may_be_nearest(bounds.cosines(tokens), places, row, cloud.doubt)
    points = cloud.points(tokens, Workspace.of_this_thread("top"))
    columns, distance = distances_to(cloud, centers, points, near)
    column = torch.searchsorted(columns, places) - 1  # the last one before the centre in doubt
    exact: list[float] = distance.cummin(-1).values[row, column].tolist()
    return exact


def _may_be_nearest(cosines: Tensor, places: Tensor, row: Tensor, doubt: float) -> Tensor:
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
