"""PaddleOCR-VL: any resolution, images only."""

from __future__ import annotations

from tokencover.runtime.families.family import Family
from tokencover.runtime.families.patch_grids import find_layouts

FAMILY = Family(
    name="PaddleOCR-VL",
    model_types=("paddleocr_vl",),
    layouts=find_layouts,
    towers=("model.visual",),
    projector="model.projector",
    several_axes=True,
)
