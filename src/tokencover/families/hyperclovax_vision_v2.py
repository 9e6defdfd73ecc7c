"""HyperCLOVA X Vision 2: any resolution, images and video, by the tower of Qwen2.5-VL."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.patch_grids import FOLDING, find_layouts

FAMILY = Family(
    name="HyperCLOVA X Vision 2",
    model_types=("hyperclovax_vision_v2",),
    layouts=find_layouts,
    folding=FOLDING,
    merges_squares=True,
    towers=("model.vision_model",),
    projector="model.projector",
)
