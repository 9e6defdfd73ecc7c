"""Families that make one grid of each image, all images of one size."""

from collections.abc import Callable, Sequence
from functools import partial

import torch

from .entry import Build, Inputs, Medium, Recipe, Sample, ZooEntry, noise
from .layout import Grid, Layout
from .vocabulary import IMAGE, LINE, VISION_END, VISION_START, Ids, tagged_chat

KINDS = ("text_only", "single", "ragged", "mixed", "two_images")


def single_grids(
    name: str,
    build: Build,
    side: int | tuple[int, int],
    token_side: int,
    more: Callable[[list[Medium]], Inputs] | None = None,
) -> ZooEntry:
    """An entry whose images are ``side`` by ``side`` tokens of ``token_side`` pixels a side.

    ``side`` may be a pair of rows and columns. ``more`` gives what the model takes beside
    ``pixel_values``.
    """
    grid = Grid(1, *((side, side) if isinstance(side, int) else side))
    return ZooEntry(
        name=name,
        build=build,
        chat=tagged_chat,
        write=write,
        media=partial(_make_media, grid, token_side),
        pack=partial(_pack, more),
        layouts=partial(_read_layouts, grid),
        kinds=KINDS,
        alike="llava",
    )


def write(medium: Medium) -> Ids:
    return [VISION_START, *[IMAGE] * medium.layout.tokens, VISION_END, LINE]


def _make_media(grid: Grid, token_side: int, recipe: Recipe) -> tuple[Medium, ...]:
    height, width = grid.rows * token_side, grid.columns * token_side
    return tuple(
        Medium(noise(10 * recipe.seed + index, 1, 3, height, width), grid, token_side=token_side)
        for index, _ in enumerate(recipe.images)
    )


def _pack(
    more: Callable[[list[Medium]], Inputs] | None, samples: Sequence[Sample], text: Inputs
) -> Inputs:
    media = [medium for sample in samples for medium in sample.media]
    if not media:
        return {}
    pixels = {"pixel_values": torch.cat([medium.pixels for medium in media])}
    return pixels if more is None else {**pixels, **more(media)}


def _read_layouts(grid: Grid, inputs: Inputs) -> tuple[list[Layout], list[Layout]]:
    count = len(inputs["pixel_values"]) if "pixel_values" in inputs else 0
    return [grid] * count, []
