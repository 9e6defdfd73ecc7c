"""Qwen3.5: the pictures of Qwen2-VL before a decoder that is mostly linear attention."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.patch_grids import FOLDING, find_layouts

FAMILY = Family(
    name="Qwen3.5",
    model_types=("qwen3_5", "qwen3_5_moe"),
    layouts=find_layouts,
    folding=FOLDING,
    merges_squares=True,
    towers=("model.visual",),
    projector="model.visual.merger",
    several_axes=True,
    reads_attention=False,
)
