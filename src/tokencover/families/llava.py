"""LLaVA-1.5 and ViP-LLaVA: one grid for each image."""

from __future__ import annotations

from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.families.family import Family
from tokencover.families.layout import (
    CLASS_TOKENS,
    Layout,
    Media,
    count_patches,
    drop_first,
    grid,
    grid_with_classes,
    read_pixels,
    read_rows,
    read_setting,
)


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each image: as large as its pixels, or as ``image_sizes`` says (Pixtral)."""
    if media.images is None:
        return [], []
    values = read_pixels(media.images, "images channels height width", "pixel_values")
    sizes = media.images.get("image_sizes")
    if sizes is None:
        return [lay_out_image(media, *values.shape[-2:])] * len(values), []
    return [grid(1, *count_patches(media, *size)) for size in read_rows(sizes)], []


def lay_out_image(media: Media, height: int, width: int) -> Layout:
    """The tokens of one image, after the model has taken the first one away or not."""
    rows, columns = count_patches(media, height, width)
    whole = grid_with_classes if _has_class_token(media) else grid
    tokens = whole(1, rows, columns)
    return tokens if _read_strategy(media) == "full" else drop_first(tokens)


def carry_tower_tokens(
    base: nn.Module, media: Media, images: Tensor | None, videos: Tensor | None
) -> tuple[list[Tensor], list[Tensor]]:
    """The tokens of each crop in order; the first is missing where the model takes it away."""
    return cut_crops(find_layouts(media)[0], images), []


def cut_crops(parts: list[Layout], numbers: Tensor | None) -> list[Tensor]:
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


def _read_strategy(media: Media) -> str:
    # ViP-LLaVA has no such setting: it always takes the first token away.
    return read_setting(media, media.images or {}, "vision_feature_select_strategy") or "default"


def _has_class_token(media: Media) -> bool:
    tower: str = media.config.vision_config.model_type
    if tower not in CLASS_TOKENS:
        raise InputError(
            f"the vision tower {tower!r} is not known, so neither is the grid of its tokens; "
            f"known towers are {', '.join(CLASS_TOKENS)}"
        )
    return CLASS_TOKENS[tower] > 0


FAMILY = Family(
    name="LLaVA-1.5",
    model_types=("llava", "vipllava"),
    layouts=find_layouts,
    tower_tokens=carry_tower_tokens,
    class_token=True,
    encodes_singly=True,
)
