"""Gemma 4 without a vision tower: patches go straight to the decoder, which is Gemma 4's."""

from __future__ import annotations

from functools import partial

from tokencover.families.family import Family
from tokencover.families.gemma4 import find_pooled_layouts

FAMILY = Family(
    name="Gemma 4 Unified",
    model_types=("gemma4_unified",),
    layouts=partial(find_pooled_layouts, pool=1),
    towers=("model.embed_vision",),
    projector="model.embed_vision.multimodal_embedder",
    windows=True,
    both_directions=True,
    reads_attention=False,
)
