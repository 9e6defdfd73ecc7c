"""LFM2-VL: pictures and tiles of any size before a decoder that is mostly short convolutions.

The model is not told which tiles make one picture: each counts as one.
"""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.layout import Layout, Media, grid, read_rows, require


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each picture or tile."""
    if media.images is None:
        return [], []
    side: int = media.config.downsample_factor
    sizes = read_rows(require(media.images, "spatial_shapes"))
    return [grid(1, rows // side, columns // side) for rows, columns in sizes], []


FAMILY = Family(
    name="LFM2-VL",
    model_types=("lfm2_vl",),
    layouts=find_layouts,
    norm="embedding_norm",
    reads_attention=False,
)
