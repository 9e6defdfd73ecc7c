"""SmolVLM: Idefics3's crops; a video is frames as images."""

from __future__ import annotations

from tokencover.runtime.families.idefics3 import DECODER, PROJECTOR, TOWERS, crop_layouts
from tokencover.runtime.family import Family, Media
from tokencover.runtime.layout import Layout


def layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each crop, as for Idefics3; of crops that are all zeros the model keeps one."""
    return crop_layouts(media, least=1), []


FAMILY = Family(
    name="SmolVLM",
    model_types=("smolvlm",),
    layouts=layouts,
    decoder=DECODER,
    towers=TOWERS,
    projector=PROJECTOR,
)
