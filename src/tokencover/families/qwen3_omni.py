"""The thinker of Qwen3-Omni: Qwen3-VL with sounds, whose tokens are never dropped."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.patch_grids import FOLDING, find_layouts

FAMILY = Family(
    name="Qwen3-Omni",
    model_types=("qwen3_omni_moe_thinker",),
    layouts=find_layouts,
    folding=FOLDING,
    merges_squares=True,
    towers=("model.visual",),
    projector="model.visual.merger",
    several_axes=True,
    deepstack=True,
    needs={"qwen3_omni_moe_thinker": "5.21"},
)
