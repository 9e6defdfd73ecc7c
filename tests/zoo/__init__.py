"""Tiny random-weight instances of the real model classes, with inputs and what is where in them.

A family that needs a newer transformers than the one that is installed has none here.
"""

from importlib import import_module

from tokencover.families import FAMILIES

from .entry import SIDES, Inputs, Medium, Sample, Side, Span, ZooEntry
from .layout import Enclosed, Grid, Layout, Tiled, WithClass

NAMES = (
    "llava",
    "llava_next",
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "video_llava",
    "llava_onevision",
    "internvl",
    "smolvlm",
    "idefics3",
    "got_ocr2",
    "ovis2",
    "fast_vlm",
    "perception_lm",
    "janus",
    "deepseek_vl",
    "deepseek_vl_hybrid",
    "video_llama_3",
    "aria",
    "idefics2",
    "hyperclovax_vision_v2",
    "granite4_vision",
    "granite_docling",
    "qwen3_vl_moe",
    "qwen2_5_omni_thinker",
    "qwen3_omni_moe_thinker",
    "qwen3_5",
    "qwen3_5_moe",
    "minicpmv4_6",
    "minicpmv4_7",
    "minicpm_ocr",
    "lfm2_vl",
    "lfm3_vl",
    "paddleocr_vl",
    "glm4v",
    "glm46v",
    "glmga",
    "glm_ocr",
    "glm4v_moe",
    "mistral3",
    "lighton_ocr",
    "vipllava",
    "qianfan_ocr",
    "ernie4_5_vl_moe",
    "cosmos3_omni",
    "cosmos3_edge",
    "kimi_k25",
    "llava_next_video",
    "pp_chart2table",
    "gemma3",
    "cohere2_vision",
    "aya_vision",
    "llama4",
    "paligemma",
    "paligemma2",
    "gemma4",
    "exaone4_5",
    "molmo2",
    "step3p7",
    "hunyuan_vl",
    "deepseek_ocr2",
    "muse_glimmer",
    "muse_spark",
    "cohere_compass",
    "gemma4_unified",
)
"""One file each, by the model type it is of."""
_MISSING = {
    model_type
    for family in FAMILIES
    for model_type in family.model_types
    if family.explain_version_fault(model_type)
}

ZOO: dict[str, ZooEntry] = {
    name: import_module(f"{__name__}.{name}").ENTRY for name in NAMES if name not in _MISSING
}

__all__ = [
    "SIDES",
    "ZOO",
    "Enclosed",
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
