"""SmolVLM: Idefics3's crops; a video is frames as images."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.folding import Patches, SquareFolding
from tokencover.families.idefics3 import (
    DECODER,
    PROJECTOR,
    TOWERS,
    count_crops,
    lay_out_crops,
)
from tokencover.families.layout import Layout, Media


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each crop, as for Idefics3; of crops that are all zeros the model keeps one."""
    return lay_out_crops(media, least=1), []


def find_patches(media: Media) -> tuple[list[Patches], list[Patches]]:
    """The patches of each crop."""
    return count_crops(media, least=1), []


FAMILY = Family(
    name="SmolVLM",
    model_types=("smolvlm",),
    layouts=find_layouts,
    folding=SquareFolding(find_patches),
    decoder=DECODER,
    towers=TOWERS,
    projector=PROJECTOR,
)
