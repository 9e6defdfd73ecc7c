"""Qwen2.5-VL: Qwen2-VL with a windowed vision tower."""

from __future__ import annotations

from tokencover.runtime.families.patch_grids import layouts
from tokencover.runtime.family import Family

FAMILY = Family(
    name="Qwen2.5-VL",
    model_types=("qwen2_5_vl",),
    layouts=layouts,
    towers=("model.visual",),
    projector="model.visual.merger",
    several_axes=True,
)
