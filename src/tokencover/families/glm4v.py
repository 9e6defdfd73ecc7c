"""GLM-4V and its kin: any resolution, images or video."""

from __future__ import annotations

from tokencover.families import patch_grids
from tokencover.families.family import Family
from tokencover.families.folding import Patches, SquareFolding
from tokencover.families.layout import Layout, Media


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each image or video.

    A prompt writes the frames of a video with image tokens, so videos are listed as images. The
    models themselves take images or videos, never both at once.
    """
    images, videos = patch_grids.find_layouts(media)
    return images + videos, []


def find_patches(media: Media) -> tuple[list[Patches], list[Patches]]:
    """The patches of each image or video."""
    images, videos = patch_grids.find_patches(media)
    return images + videos, []


FAMILY = Family(
    name="GLM-4V",
    model_types=("glm4v", "glm4v_moe", "glm46v", "glmga", "glm_ocr"),
    layouts=find_layouts,
    folding=SquareFolding(find_patches, in_squares=True),
    merges_squares=True,
    towers=("model.visual",),
    projector="model.visual.merger",
    several_axes=True,
    frames_as_images=True,
)
