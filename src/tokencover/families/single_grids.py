"""One grid for each image, as large as its pixels."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from torch import Tensor, nn

from tokencover.families.family import Family
from tokencover.families.layout import Media, build_equal_grids, count_patches

AXES = "images channels height width"
_build_layouts = partial(build_equal_grids, axes=AXES, measure=count_patches)


def _map_vision_tokens(
    base: nn.Module, media: Media, images: Tensor | None, videos: Tensor | None
) -> tuple[list[Tensor], list[Tensor]]:
    """The tokens of each image, in order."""
    return [] if images is None else list(images), []


DEEPSEEK_VL = Family(
    name="DeepSeek-VL",
    model_types=("deepseek_vl",),
    layouts=_build_layouts,
    vision_encoders=("model.vision_model",),
    projector="model.aligner",
    map_vision_tokens=_map_vision_tokens,
)
"""DeepSeek-VL: one SigLIP grid for each image."""

DEEPSEEK_VL_HYBRID = replace(
    DEEPSEEK_VL,
    name="DeepSeek-VL hybrid",
    model_types=("deepseek_vl_hybrid",),
    vision_encoders=("model.vision_model", "model.high_res_vision_model"),
    map_vision_tokens=None,
)
"""DeepSeek-VL with a second vision encoder, for the same image in higher resolution."""

JANUS = replace(DEEPSEEK_VL, name="Janus", model_types=("janus",))
"""Janus, which reads images like DeepSeek-VL; image generation is not pruned."""

PALIGEMMA = Family(
    name="PaliGemma",
    model_types=("paligemma",),
    layouts=_build_layouts,
    windows=True,
    both_directions=True,
)
"""PaliGemma: one grid for each image; all tokens of the prompt attend to each other."""

_FAST_VIT_STRIDE = 64
"""Of the FastViT-HD vision encoders; the configuration does not have it."""


def _measure_fast_grid(media: Media, height: int, width: int) -> tuple[int, int]:
    return -(-height // _FAST_VIT_STRIDE), -(-width // _FAST_VIT_STRIDE)


FAST_VLM = Family(
    name="FastVLM",
    model_types=("fast_vlm",),
    layouts=partial(build_equal_grids, axes=AXES, measure=_measure_fast_grid),
)
"""FastVLM: a convolutional vision encoder makes one grid of each image."""
