"""EXAONE 4.5: Qwen2.5-VL's tower before a decoder with windows and plain positions."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.patch_grids import find_layouts

FAMILY = Family(
    name="EXAONE 4.5",
    model_types=("exaone4_5",),
    layouts=find_layouts,
    towers=("model.visual",),
    projector="model.visual.merger",
    windows=True,
    reads_attention=False,
)
