"""PerceptionLM: a small view and tiles of each image, or frames, each pooled to a square grid."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tokencover.errors import InputError
from tokencover.families.family import Family
from tokencover.families.layout import Layout, Media, grid, read_pixels, require_square


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each image and each video; `frame` counts the views of an image.

    The model is not told how tiles lie beside each other: rows and columns count inside each view.
    """
    return _read_grids(media, media.images), _read_grids(media, media.videos)


def _read_grids(media: Media, arguments: Mapping[str, Any] | None) -> list[Layout]:
    if arguments is None:
        return []
    # Videos come by the encoder of pictures, so their pixels have the same name.
    values = read_pixels(arguments, "media views channels height width", "pixel_values")
    patch = _find_patch_size(media.config.vision_config)
    patches = require_square(*(length // patch for length in values.shape[-2:]))
    side = patches // media.config.projector_pooling_ratio
    return [grid(values.shape[1], side, side)] * len(values)


def _find_patch_size(vision: Any) -> int:
    """Towers of timm say it in their name only, as in ``vit_pe_core_large_patch14_336``."""
    known = getattr(vision, "patch_size", None)
    if known is not None:
        return int(known)
    name = str(getattr(vision, "architecture", ""))
    found = re.search(r"patch(\d+)", name)
    if found is None:
        raise InputError(
            f"the vision tower {name!r} does not say how large its patches are, so the grid of its "
            f"tokens is unknown; known are towers with a patch size in their name"
        )
    return int(found[1])


FAMILY = Family(
    name="PerceptionLM",
    model_types=("perception_lm",),
    layouts=find_layouts,
    needs={"perception_lm": "5.20"},
)
