"""The model families that tokencover knows, one file each.

A file that defines ``FAMILY = Family(...)`` is found by itself. Families of other packages come
through the entry-point group ``tokencover.families``, or by ``FAMILIES.register(family)``.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tokencover.families.family import (
    FAMILIES,
    WINDOWS,
    Claim,
    Family,
    UnsupportedModelError,
    family_of,
    find_block_kinds,
    find_claims,
    find_refused,
    is_recurrent,
    needs_own_masks,
)
from tokencover.families.folding import FoldedCrops, Folding, SquareFolding, TowerFacts
from tokencover.families.layout import (
    CLASS,
    CLASS_TOKENS,
    NEWLINE,
    PATCH,
    Layout,
    Media,
    Places,
    add_newline,
    count_patches,
    grid,
    grid_with_classes,
    grid_with_newlines,
    join_views,
    lay_in_lines,
    read_pixels,
    read_rows,
    read_setting,
    require,
)

_LISTED_FIRST = (
    "llava",
    "llava_next",
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "qwen3_5",
    "minicpm_v",
    "lfm2_vl",
    "lfm3_vl",
    "qwen2_5_omni",
    "qwen3_omni",
    "video_llava",
    "llava_onevision",
    "internvl",
    "smolvlm",
    "idefics3",
    "mistral3",
    "lighton_ocr",
    "glm4v",
    "deepseek_vl",
    "deepseek_vl_hybrid",
    "janus",
    "got_ocr2",
    "ovis2",
    "fast_vlm",
    "perception_lm",
    "video_llama_3",
    "hyperclovax_vision_v2",
    "granite4_vision",
    "granite_docling",
    "aria",
    "idefics2",
    "gemma3",
    "gemma4",
    "cohere2_vision",
    "llama4",
    "paligemma",
    "molmo2",
    "exaone4_5",
    "step3p7",
)
"""The order in which users see our families; files that are not named here follow by name."""


def _register_ours() -> None:
    names = sorted(module.name for module in iter_modules(__path__))
    for name in [*_LISTED_FIRST, *(each for each in names if each not in _LISTED_FIRST)]:
        family = getattr(import_module(f"{__name__}.{name}"), "FAMILY", None)
        if family is not None:  # a file that several families share defines none
            FAMILIES.register(family)


_register_ours()

__all__ = [
    "CLASS",
    "CLASS_TOKENS",
    "FAMILIES",
    "NEWLINE",
    "PATCH",
    "WINDOWS",
    "Claim",
    "Family",
    "FoldedCrops",
    "Folding",
    "Layout",
    "Media",
    "Places",
    "SquareFolding",
    "TowerFacts",
    "UnsupportedModelError",
    "add_newline",
    "count_patches",
    "family_of",
    "find_block_kinds",
    "find_claims",
    "find_refused",
    "grid",
    "grid_with_classes",
    "grid_with_newlines",
    "is_recurrent",
    "join_views",
    "lay_in_lines",
    "needs_own_masks",
    "read_pixels",
    "read_rows",
    "read_setting",
    "require",
]
