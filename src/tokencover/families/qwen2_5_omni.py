"""The thinker of Qwen2.5-Omni: Qwen2.5-VL with sounds, whose tokens are never dropped."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.patch_grids import FOLDING, find_layouts

FAMILY = Family(
    name="Qwen2.5-Omni",
    model_types=("qwen2_5_omni_thinker",),
    layouts=find_layouts,
    folding=FOLDING,
    merges_squares=True,
    towers=("model.visual",),
    projector="model.visual.merger",
    several_axes=True,
    needs={"qwen2_5_omni_thinker": "5.21"},
)
