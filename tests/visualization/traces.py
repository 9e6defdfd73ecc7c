"""Traces made by hand: every token of every grid is there, and one says which were kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tokencover.pruning import Trace

Place = tuple[int, int, int, int]
"""Medium, frame, row, column."""


def raster(grids: Mapping[tuple[int, int], tuple[int, int]], newlines: bool = False) -> list[Place]:
    """The places of all tokens, view by view; a newline token after every row of later views."""
    places = []
    for (medium, frame), (rows, columns) in grids.items():
        for row in range(rows):
            places += [(medium, frame, row, column) for column in range(columns)]
            if newlines and frame > 0:
                places.append((medium, frame, -1, -1))
    return places


def make_trace(
    grids: Mapping[tuple[int, int], tuple[int, int]],
    prompt: Sequence[Place] = (),
    visual: Sequence[Place] = (),
    others: Sequence[Place] = (),
    *,
    newlines: bool = False,
    **details: Any,
) -> Trace:
    """A trace that kept these places; newline tokens stay, as they do for most methods."""
    places = raster(grids, newlines)
    index = {place: number for number, place in enumerate(places)}
    stay = [number for number, place in enumerate(places) if place[2] < 0]
    kept = sorted({*(index[place] for place in (*prompt, *visual, *others)), *stay})
    everywhere = torch.tensor(places)
    here = everywhere[kept].reshape(-1, 4)
    if prompt or visual:
        details["prompt_centers"] = torch.tensor([index[place] for place in prompt]).long()
        details["visual_centers"] = torch.tensor([index[place] for place in visual]).long()
    return Trace(
        sample=0,
        visual_tokens=len(places),
        kept=torch.tensor(kept).long(),
        medium=here[:, 0],
        frame=here[:, 1],
        row=here[:, 2],
        column=here[:, 3],
        grids=dict(grids),
        tokens_per_layer=[len(kept)],
        flops=0,
        flops_unpruned=0,
        seconds=0.0,
        details=details,
        grid_locations=everywhere,
    )
