"""DeepSeek-VL with a second tower for the same picture in higher resolution."""

from __future__ import annotations

from dataclasses import replace

from tokencover.families import deepseek_vl

FAMILY = replace(
    deepseek_vl.FAMILY,
    name="DeepSeek-VL hybrid",
    model_types=("deepseek_vl_hybrid",),
    towers=("model.vision_model", "model.high_res_vision_model"),
    tower_tokens=None,
)
