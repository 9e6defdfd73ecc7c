"""Tiny random-weight instances of the real model classes, with inputs and what is where in them."""

from . import (
    aria,
    deepseek_vl,
    deepseek_vl_hybrid,
    fast_vlm,
    got_ocr2,
    granite4_vision,
    hyperclovax_vision_v2,
    idefics2,
    idefics3,
    internvl,
    janus,
    llava,
    llava_next,
    llava_onevision,
    ovis2,
    perception_lm,
    paddleocr_vl,
    qwen2_5_omni_thinker,
    qwen2_5_vl,
    qwen2_vl,
    qwen3_omni_moe_thinker,
    qwen3_vl,
    qwen3_vl_moe,
    smolvlm,
    video_llama_3,
    video_llava,
)
from .entry import SIDES, Inputs, Medium, Sample, Side, Span, ZooEntry
from .layout import Grid, Layout, Tiled, WithClass

ZOO: dict[str, ZooEntry] = {
    module.ENTRY.name: module.ENTRY
    for module in (
        llava,
        llava_next,
        qwen2_vl,
        qwen2_5_vl,
        qwen3_vl,
        video_llava,
        llava_onevision,
        internvl,
        smolvlm,
        idefics3,
        got_ocr2,
        ovis2,
        fast_vlm,
        perception_lm,
        janus,
        deepseek_vl,
        deepseek_vl_hybrid,
        video_llama_3,
        aria,
        idefics2,
        hyperclovax_vision_v2,
        granite4_vision,
        qwen3_vl_moe,
        qwen2_5_omni_thinker,
        qwen3_omni_moe_thinker,
        paddleocr_vl,
    )
}

__all__ = [
    "SIDES",
    "ZOO",
    "Grid",
    "Inputs",
    "Layout",
    "Medium",
    "Sample",
    "Side",
    "Span",
    "Tiled",
    "WithClass",
    "ZooEntry",
]
