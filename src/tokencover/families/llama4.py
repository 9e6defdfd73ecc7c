"""Llama 4: square tiles, layers that attend in chunks, and queries scaled by position."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.layout import Layouts, Media
from tokencover.families.tiles import build_square_tiles


def _build_layouts(media: Media) -> Layouts:
    return build_square_tiles(
        media, lambda side, config: int(side * config.vision_config.pixel_shuffle_ratio)
    )


LLAMA4 = Family(
    name="Llama 4",
    model_types=("llama4",),
    layouts=_build_layouts,
    base="",
    decoder="language_model.model",
    vision_encoders=("vision_model",),
    projector="multi_modal_projector",
    windows=True,
    reads_attention=False,
    scales_by_place=True,
)
"""Llama 4: square tiles, and layers that attend in chunks."""
