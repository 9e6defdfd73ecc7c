"""Ovis2: crops, whose patches are folded and become words of a visual vocabulary.

The tags around crops have learned features as well; they are text here, and always stay.
"""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.folding import Patches, SquareFolding
from tokencover.families.layout import (
    Layout,
    Media,
    count_patches,
    grid,
    read_pixels,
    require_square,
)


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each crop, in order: the model is not told which crops make one image."""
    if media.images is None:
        return [], []
    crops, _ = find_patches(media)
    stride: int = media.config.vision_config.hidden_stride
    return [grid(1, -(-side // stride), -(-side // stride)) for _, side, _ in crops], []


def find_patches(media: Media) -> tuple[list[Patches], list[Patches]]:
    """The patches of each crop."""
    if media.images is None:
        return [], []
    values = read_pixels(media.images, "crops channels height width", "pixel_values")
    side = require_square(*count_patches(media, *values.shape[-2:]))
    return [(1, side, side)] * len(values), []


FAMILY = Family(
    name="Ovis2",
    model_types=("ovis2",),
    needs={"ovis2": "5.20"},
    layouts=find_layouts,
    projector="model.visual_embeddings_table",
    folding=SquareFolding(find_patches),
)
