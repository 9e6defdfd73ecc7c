"""Qwen2.5-VL: Qwen2-VL with a windowed vision tower."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.patch_grids import FOLDING, find_layouts

FAMILY = Family(
    name="Qwen2.5-VL",
    model_types=("qwen2_5_vl",),
    layouts=find_layouts,
    folding=FOLDING,
    merges_squares=True,
    towers=("model.visual",),
    projector="model.visual.merger",
    several_axes=True,
)
