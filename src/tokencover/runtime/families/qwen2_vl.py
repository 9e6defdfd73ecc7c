"""Qwen2-VL: any resolution, images and video."""

from __future__ import annotations

from tokencover.runtime.families.patch_grids import layouts
from tokencover.runtime.family import Family

FAMILY = Family(
    name="Qwen2-VL",
    model_types=("qwen2_vl",),
    layouts=layouts,
    towers=("model.visual",),
    projector="model.visual.merger",
    several_axes=True,
)
