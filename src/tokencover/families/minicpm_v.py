"""MiniCPM-V 4.6 and 4.7 and MiniCPM-OCR: slices of a picture before Qwen3.5's decoder.

The models are not told which slices make one picture, or which frames one video: each counts as
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokencover.families.family import Family
from tokencover.families.layout import Layout, Media, grid, read_rows, require


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each slice and each frame."""
    images = _read_sizes(media, media.images, "target_sizes")
    return images, _read_sizes(media, media.videos, "target_sizes_videos")


def _read_sizes(media: Media, arguments: Mapping[str, Any] | None, name: str) -> list[Layout]:
    if arguments is None:
        return []
    config = media.config
    mode = arguments.get("downsample_mode") or config.downsample_mode
    rows, columns = (side**config.merger_times for side in config.merge_kernel_size)
    window = 1 if mode == "4x" else 2  # the tower merges squares of patches before the merger does
    sizes = read_rows(require(arguments, name))
    return [grid(1, high // window // rows, wide // window // columns) for high, wide in sizes]


FAMILY = Family(
    name="MiniCPM-V",
    model_types=("minicpmv4_6", "minicpmv4_7", "minicpm_ocr"),
    needs={"minicpm_ocr": "5.21"},
    layouts=find_layouts,
    projector="model.merger",
    several_axes=True,
    reads_attention=False,
)
