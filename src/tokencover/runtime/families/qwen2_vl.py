"""Qwen2-VL: any resolution, images and video."""

from __future__ import annotations

from tokencover.runtime.families.family import Family
from tokencover.runtime.families.patch_grids import find_layouts

FAMILY = Family(
    name="Qwen2-VL",
    model_types=("qwen2_vl",),
    layouts=find_layouts,
    towers=("model.visual",),
    projector="model.visual.merger",
    several_axes=True,
)
