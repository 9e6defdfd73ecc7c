"""HunYuan VL: any resolution; a newline ends each row, and each picture has a first and last token.

The model numbers pictures through the whole batch, and the number is one of the axes of its
positions: what a row answers depends on how many pictures stand in the rows before it, pruned or
not.
"""

from __future__ import annotations

from tokencover.families.family import Family
from tokencover.families.folding import SquareFolding
from tokencover.families.layout import (
    Layout,
    Media,
    add_newline,
    grid_with_newlines,
    keep_tokens,
)
from tokencover.families.patch_grids import find_patches


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One view for each image, between two tokens that belong to no row."""
    side: int = media.config.vision_config.spatial_merge_size
    images, _ = find_patches(media)
    return [_lay_out(rows // side, columns // side) for _, rows, columns in images], []


def _lay_out(rows: int, columns: int) -> Layout:
    closed = add_newline(grid_with_newlines(rows, columns))
    last = len(closed) - 1
    return keep_tokens(closed, closed.kind.new_tensor([last, *range(len(closed))]))


FAMILY = Family(
    name="HunYuan VL",
    model_types=("hunyuan_vl",),
    layouts=find_layouts,
    folding=SquareFolding(find_patches),
    projector="model.vision_tower.patch_merger",
    several_axes=True,
    reads_attention=False,
)
