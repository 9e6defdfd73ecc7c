"""Cosmos 3 Edge: the Qwens' pictures before a decoder of its own."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.patch_grids import FOLDING, find_layouts

FAMILY = Family(
    name="Cosmos 3 Edge",
    model_types=("cosmos3_edge",),
    layouts=find_layouts,
    folding=FOLDING,
    merges_squares=True,
    towers=("model.visual",),
    projector="model.projector",
    several_axes=True,
)
