"""The Qwen-VLs, and models with their vision encoder and layout of visual tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor, nn

from tokencover.families.family import Family, GetPass
from tokencover.families.patch_grids import FOLDING, build_layouts

if TYPE_CHECKING:
    from tokencover.pruning.hooks import Hooks
    from tokencover.pruning.passes import Kept


def cut_deepstack(decoder: nn.Module, hooks: Hooks, get_pass: GetPass) -> None:
    """DeepStack adds features after the first layers: add only those of kept tokens."""

    def add(
        original: Callable[..., Tensor], states: Tensor, positions: Tensor, features: Tensor
    ) -> Tensor:
        current = get_pass()
        kept = None if current is None else current.find_kept(current.layer_idx)
        if kept is None:
            return original(states, positions, features)
        return original(states, *cut_features(positions, features, kept))

    hooks.around(decoder, "_deepstack_process", add)


def cut_features(positions: Tensor, features: Tensor, kept: Kept) -> tuple[Tensor, Tensor]:
    """The visual positions of a shortened sequence, and their features.

    `positions` ``(b, s)`` bool marks the visual tokens of the whole sequence, `features` ``(n, d)``
    has a row for each.
    """
    spread = features.new_zeros(*positions.shape, features.shape[-1])
    spread[positions.to(features.device)] = features
    left = kept.take(positions.to(kept.index.device)) & kept.valid
    return left, kept.take(spread)[left.to(features.device)]


QWEN2_VL = Family(
    name="Qwen2-VL",
    model_types=("qwen2_vl",),
    layouts=build_layouts,
    folding=FOLDING,
    merges_squares=True,
    vision_encoders=("model.visual",),
    projector="model.visual.merger",
    several_axes=True,
)
"""Qwen2-VL: images of any resolution, and videos."""

QWEN2_5_VL = replace(QWEN2_VL, name="Qwen2.5-VL", model_types=("qwen2_5_vl",))
"""Qwen2.5-VL: Qwen2-VL with a windowed vision encoder."""

QWEN3_VL = replace(
    QWEN2_VL,
    name="Qwen3-VL",
    model_types=("qwen3_vl", "qwen3_vl_moe", "cosmos3_omni"),
    decoder_hooks=cut_deepstack,
)
"""Qwen3-VL, and Cosmos 3 Omni which is made of its parts: Qwen2-VL with DeepStack.

A video has a timestamp before each frame.
"""

QWEN3_5 = replace(
    QWEN2_VL, name="Qwen3.5", model_types=("qwen3_5", "qwen3_5_moe"), reads_attention=False
)
"""Qwen3.5: Qwen2-VL's images, and a decoder that is mostly linear attention."""

QWEN2_5_OMNI = replace(
    QWEN2_VL,
    name="Qwen2.5-Omni",
    model_types=("qwen2_5_omni_thinker",),
    needs={"qwen2_5_omni_thinker": "5.21"},
)
"""The thinker of Qwen2.5-Omni: Qwen2.5-VL with audio, whose tokens are never dropped."""

QWEN3_OMNI = replace(
    QWEN3_VL,
    name="Qwen3-Omni",
    model_types=("qwen3_omni_moe_thinker",),
    needs={"qwen3_omni_moe_thinker": "5.21"},
)
"""The thinker of Qwen3-Omni: Qwen3-VL with audio, whose tokens are never dropped."""

COHERE_COMPASS = replace(
    QWEN3_VL,
    name="Cohere Compass",
    model_types=("cohere_compass",),
    windows=True,
    reads_attention=False,
    folding=None,
    merges_squares=False,
)
"""Cohere Compass: Qwen3-VL's images and DeepStack, windows, and layers without rotations."""

EXAONE4_5 = replace(
    QWEN2_VL,
    name="EXAONE 4.5",
    model_types=("exaone4_5",),
    several_axes=False,
    windows=True,
    reads_attention=False,
    folding=None,
    merges_squares=False,
)
"""EXAONE 4.5: Qwen2.5-VL's vision encoder, and a decoder with windows and plain positions."""

COSMOS3_EDGE = replace(
    QWEN2_VL,
    name="Cosmos 3 Edge",
    model_types=("cosmos3_edge",),
    projector="model.projector",
)
"""Cosmos 3 Edge: the Qwens' images, and another decoder."""

HYPERCLOVAX_VISION_V2 = replace(
    QWEN2_VL,
    name="HyperCLOVA X Vision 2",
    model_types=("hyperclovax_vision_v2",),
    vision_encoders=("model.vision_model",),
    projector="model.projector",
    several_axes=False,
)
"""HyperCLOVA X Vision 2: images of any resolution and videos, by Qwen2.5-VL's vision encoder."""
