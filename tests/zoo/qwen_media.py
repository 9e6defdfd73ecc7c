"""Images and videos of any size as the Qwens take them: rows of patches, and their grids."""

from collections.abc import Sequence

import torch

from .entry import Inputs, Medium, Recipe, Sample, noise
from .layout import Grid, Layout
from .vision_encoders import PATCH
from .vocabulary import IMAGE, VIDEO

MERGE = 2
TEMPORAL_PATCH = 2
VALUES = 3 * TEMPORAL_PATCH * PATCH * PATCH

IMAGE_GRIDS = ((1, 6, 8), (1, 4, 10), (1, 8, 4))
VIDEO_GRIDS = ((2, 4, 6), (3, 6, 4))


def merged(patches: Sequence[int]) -> Grid:
    """Give the grid of tokens of a grid of patches."""
    frames, rows, columns = patches
    return Grid(frames, rows // MERGE, columns // MERGE)


def medium(seed: int, patches: tuple[int, int, int], video: bool) -> Medium:
    frames, rows, columns = patches
    pixels = noise(seed, frames * rows * columns, VALUES)
    return Medium(pixels, merged(patches), video=video, size=patches, patches_per_token=MERGE**2)


def media(recipe: Recipe) -> tuple[Medium, ...]:
    images = [
        medium(10 * recipe.seed + index, IMAGE_GRIDS[shape], video=False)
        for index, shape in enumerate(recipe.images)
    ]
    videos = [medium(100 * recipe.seed, VIDEO_GRIDS[shape], video=True) for shape in recipe.videos]
    return (*images, *videos)


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    """Concatenate the patches and say for each token whether it is text, image or video."""
    ids = text["input_ids"]
    packed = {"mm_token_type_ids": (ids == IMAGE).int() + 2 * (ids == VIDEO).int()}
    all_media = [each for sample in samples for each in sample.media]
    for video, pixels_name, grid_name in (
        (False, "pixel_values", "image_grid_thw"),
        (True, "pixel_values_videos", "video_grid_thw"),
    ):
        chosen = [each for each in all_media if each.video == video]
        if chosen:
            packed[pixels_name] = torch.cat([each.pixels for each in chosen])
            packed[grid_name] = torch.tensor([each.size for each in chosen])
    return packed


def layouts(inputs: Inputs) -> tuple[list[Layout], list[Layout]]:
    def read(name: str) -> list[Layout]:
        return [merged(grid) for grid in inputs[name].tolist()] if name in inputs else []

    return read("image_grid_thw"), read("video_grid_thw")


def vision_config(**extra: int | Sequence[int]) -> dict[str, int | Sequence[int]]:
    """Give the settings of a tiny vision encoder that the three Qwens share."""
    return {
        "depth": 3,
        "num_heads": 2,
        "in_channels": 3,
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": TEMPORAL_PATCH,
        **extra,
    }
