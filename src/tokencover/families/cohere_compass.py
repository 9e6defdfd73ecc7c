"""Cohere Compass: Qwen3-VL's pictures and DeepStack, windows, and blocks without rotations."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.patch_grids import find_layouts

FAMILY = Family(
    name="Cohere Compass",
    model_types=("cohere_compass",),
    layouts=find_layouts,
    towers=("model.visual",),
    projector="model.visual.merger",
    several_axes=True,
    deepstack=True,
    windows=True,
    reads_attention=False,
)
