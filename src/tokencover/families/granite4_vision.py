"""Granite 4 Vision: LLaVA-Next's views, whose features are added before many layers."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.llava import build_next_layouts

GRANITE4_VISION = Family(
    name="Granite 4 Vision",
    model_types=("granite4_vision",),
    layouts=build_next_layouts,
    projector="model.layerwise_projectors.0",
    added_features=True,
    tiles=True,
    needs={"granite4_vision": "5.20"},
)
"""Granite 4 Vision: LLaVA-Next's views, whose features are added before many layers."""
