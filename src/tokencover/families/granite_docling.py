"""Granite Docling: a page is cut into tiles; its features are added after the first layers too."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.folding import Patches, SquareFolding
from tokencover.families.idefics3 import DECODER, TOWERS
from tokencover.families.layout import Layout, Media, grid, require


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each tile that is not padding; the model is not told which make one page."""
    if media.images is None:
        return [], []
    fold: int = media.config.vision_config.scale_factor
    if media.images.get("tile_fine_mask") is not None:  # the model reads no more of it
        fold //= 2
    return [grid(1, side // fold, side // fold) for _, side, _ in _count_patches(media)], []


def find_patches(media: Media) -> tuple[list[Patches], list[Patches]]:
    """The patches of each tile."""
    return _count_patches(media), []


def _count_patches(media: Media) -> list[Patches]:
    if media.images is None:
        return []
    vision = media.config.vision_config
    side = vision.image_size // vision.patch_size
    return [(1, side, side)] * int(require(media.images, "pixel_attention_mask").sum())


FAMILY = Family(
    name="Granite Docling",
    model_types=("granite_docling",),
    layouts=find_layouts,
    folding=SquareFolding(find_patches),
    decoder=DECODER,
    towers=TOWERS,
    projector="model.vision_model.connector",
    deepstack=True,
    needs={"granite_docling": "5.23"},
)
