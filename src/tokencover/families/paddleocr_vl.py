"""PaddleOCR-VL: any resolution, images only."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.folding import SquareFolding
from tokencover.families.patch_grids import find_layouts, find_patches

FAMILY = Family(
    name="PaddleOCR-VL",
    model_types=("paddleocr_vl",),
    layouts=find_layouts,
    folding=SquareFolding(find_patches),
    merges_squares=True,
    towers=("model.visual",),
    projector="model.projector",
    several_axes=True,
)
