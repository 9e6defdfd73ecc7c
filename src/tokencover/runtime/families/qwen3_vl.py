"""Qwen3-VL: Qwen2-VL with DeepStack; a video has a timestamp before each frame."""

from __future__ import annotations

from tokencover.runtime.families.family import Family
from tokencover.runtime.families.patch_grids import find_layouts

FAMILY = Family(
    name="Qwen3-VL",
    model_types=("qwen3_vl", "qwen3_vl_moe"),
    layouts=find_layouts,
    towers=("model.visual",),
    projector="model.visual.merger",
    several_axes=True,
    deepstack=True,
)
