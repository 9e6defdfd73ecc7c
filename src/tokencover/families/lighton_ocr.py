"""LightOnOCR: Mistral 3's pictures before a Qwen3 decoder."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.mistral3 import FOLDING, find_layouts

FAMILY = Family(
    name="LightOnOCR",
    model_types=("lighton_ocr",),
    layouts=find_layouts,
    folding=FOLDING,
    towers=("model.vision_encoder",),
    projector="model.vision_projection",
)
