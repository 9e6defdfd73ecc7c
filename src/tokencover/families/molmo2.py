"""Molmo 2: a small view of the picture, then a large one from crops; all of it sees itself."""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.layout import Layout, Media, grid, join_views, read_rows, require


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One layout for each image, its small view first; one grid with all frames for each video."""
    images, videos = [], []
    if media.images is not None:
        for rows, columns, more_rows, more_columns in read_rows(
            require(media.images, "image_grids")
        ):
            small = grid(1, rows, columns)
            large = grid(1, more_rows, more_columns)
            images.append(join_views(small, large) if len(large) else small)
    if media.videos is not None:
        videos = [grid(*size) for size in read_rows(require(media.videos, "video_grids"))]
    return images, videos


FAMILY = Family(
    name="Molmo 2",
    model_types=("molmo2",),
    needs={"molmo2": "5.20"},
    layouts=find_layouts,
    both_directions=True,
)
