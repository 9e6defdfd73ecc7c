"""LLaVA-1.5 and ViP-LLaVA: one grid for each image."""

from __future__ import annotations

from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.runtime.families.arguments import patch_grid, pixels, rows_of_integers, setting
from tokencover.runtime.family import Family, Media
from tokencover.runtime.layout import Layout, grid, grid_with_classes, without_first

CLASS_TOKEN = {"clip_vision_model": True, "siglip_vision_model": False, "pixtral": False}
"""The vision towers whose tokens are known, and whether a class token comes first."""


def layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each image: as large as its pixels, or as ``image_sizes`` says (Pixtral)."""
    if media.images is None:
        return [], []
    values = pixels(media.images, "images channels height width", "pixel_values")
    sizes = media.images.get("image_sizes")
    if sizes is None:
        return [image_layout(media, *values.shape[-2:])] * len(values), []
    return [grid(1, *patch_grid(media, *size)) for size in rows_of_integers(sizes)], []


def image_layout(media: Media, height: int, width: int) -> Layout:
    """The tokens of one image, after the model has taken the first one away or not."""
    rows, columns = patch_grid(media, height, width)
    whole = grid_with_classes if _has_class_token(media) else grid
    tokens = whole(1, rows, columns)
    return tokens if _strategy(media) == "full" else without_first(tokens)


def tower_tokens(
    base: nn.Module, media: Media, images: Tensor | None, videos: Tensor | None
) -> tuple[list[Tensor], list[Tensor]]:
    """The tokens of each crop in order; the first is missing where the model takes it away."""
    return from_crops(layouts(media)[0], images), []


def from_crops(parts: list[Layout], numbers: Tensor | None) -> list[Tensor]:
    """Cut numbers ``(crops, tokens)`` for images or videos whose frames are a crop each."""
    if numbers is None:
        return []
    found, start = [], 0
    for part in parts:
        frames = part.shape[0]
        crops = numbers[start : start + frames]
        found.append(crops[:, crops.shape[1] - len(part) // frames :].flatten())
        start += frames
    return found


def _strategy(media: Media) -> str:
    # ViP-LLaVA has no such setting: it always takes the first token away.
    return setting(media, media.images or {}, "vision_feature_select_strategy") or "default"


def _has_class_token(media: Media) -> bool:
    tower: str = media.config.vision_config.model_type
    if tower not in CLASS_TOKEN:
        raise InputError(
            f"the vision tower {tower!r} is not known, so neither is the grid of its tokens; "
            f"known towers are {', '.join(CLASS_TOKEN)}"
        )
    return CLASS_TOKEN[tower]


FAMILY = Family(
    name="LLaVA-1.5",
    model_types=("llava", "vipllava"),
    layouts=layouts,
    tower_tokens=tower_tokens,
)
