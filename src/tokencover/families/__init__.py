"""The supported model families.

Families of other packages are announced by the entry-point group ``tokencover.families``, or
registered with ``FAMILIES.register(family)``.
"""

from __future__ import annotations

from tokencover.families import (
    grids,
    llama4,
    llava,
    llava_onevision,
    patch_grids,
    qwen,
    tiles,
)
from tokencover.families.family import Family, TextModel, compute_block_cost, get_text_model
from tokencover.families.folding import FoldedTiles, SquareFolding, VisionEncoderFacts
from tokencover.families.layout import Layout, Media, Places, build_fallback_layout, grid
from tokencover.families.registry import (
    FAMILIES,
    RECURRENT,
    WINDOWS,
    Claim,
    UnsupportedModelError,
    family_of,
    list_claims,
    list_layer_types,
    list_refused,
    needs_own_masks,
)

for _family in (  # in the order in which they are listed to users
    llava.LLAVA, llava.LLAVA_NEXT, qwen.QWEN2_VL, qwen.QWEN2_5_VL, qwen.QWEN3_VL, qwen.QWEN3_5,
    grids.MINICPM_V, grids.LFM2_VL, patch_grids.LFM3_VL, qwen.QWEN2_5_OMNI, qwen.QWEN3_OMNI,
    llava.VIDEO_LLAVA, llava_onevision.LLAVA_ONEVISION, tiles.INTERNVL, tiles.SMOLVLM,
    tiles.IDEFICS3, grids.MISTRAL3, grids.LIGHTON_OCR, patch_grids.GLM4V,
    grids.DEEPSEEK_VL, grids.DEEPSEEK_VL_HYBRID, grids.JANUS, tiles.GOT_OCR2,
    tiles.OVIS2, grids.FAST_VLM, grids.PERCEPTION_LM, patch_grids.VIDEO_LLAMA_3,
    qwen.HYPERCLOVAX_VISION_V2, llava.GRANITE4_VISION, tiles.GRANITE_DOCLING,
    tiles.ARIA, tiles.IDEFICS2, grids.GEMMA3, grids.GEMMA4, tiles.COHERE_VISION,
    llama4.LLAMA4, grids.PALIGEMMA, grids.MOLMO2, qwen.EXAONE4_5, grids.STEP3P7,
    qwen.COHERE_COMPASS, qwen.COSMOS3_EDGE, tiles.DEEPSEEK_OCR2, patch_grids.ERNIE4_5_VL,
    grids.GEMMA4_UNIFIED, patch_grids.HUNYUAN_VL, patch_grids.KIMI_K25, patch_grids.MUSE,
    patch_grids.PADDLEOCR_VL,
):  # fmt: skip
    FAMILIES.register(_family)

__all__ = [
    "FAMILIES",
    "RECURRENT",
    "WINDOWS",
    "Claim",
    "Family",
    "FoldedTiles",
    "Layout",
    "Media",
    "Places",
    "SquareFolding",
    "TextModel",
    "UnsupportedModelError",
    "VisionEncoderFacts",
    "build_fallback_layout",
    "compute_block_cost",
    "family_of",
    "get_text_model",
    "grid",
    "list_claims",
    "list_layer_types",
    "list_refused",
    "needs_own_masks",
]
