"""LightOnOCR: Mistral 3's pictures before a Qwen3 decoder."""

from __future__ import annotations

from tokencover.runtime.families.mistral3 import layouts
from tokencover.runtime.family import Family

FAMILY = Family(
    name="LightOnOCR",
    model_types=("lighton_ocr",),
    layouts=layouts,
    towers=("model.vision_encoder",),
    projector="model.vision_projection",
)
