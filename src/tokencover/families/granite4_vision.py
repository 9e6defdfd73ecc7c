"""Granite 4 Vision: views as LLaVA-Next's, whose features are added before many blocks."""

from __future__ import annotations

from tokencover.families import llava_next
from tokencover.families.family import Family

FAMILY = Family(
    name="Granite 4 Vision",
    model_types=("granite4_vision",),
    layouts=llava_next.find_layouts,
    projector="model.layerwise_projectors.0",
    added_features=True,
    tiles=True,
    needs={"granite4_vision": "5.20"},
)
