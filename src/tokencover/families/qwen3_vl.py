"""Qwen3-VL, and Cosmos 3 Omni which is made of its parts: Qwen2-VL with DeepStack.

A video has a timestamp before each frame.
"""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.patch_grids import FOLDING, find_layouts

FAMILY = Family(
    name="Qwen3-VL",
    model_types=("qwen3_vl", "qwen3_vl_moe", "cosmos3_omni"),
    layouts=find_layouts,
    folding=FOLDING,
    merges_squares=True,
    towers=("model.visual",),
    projector="model.visual.merger",
    several_axes=True,
    deepstack=True,
)
