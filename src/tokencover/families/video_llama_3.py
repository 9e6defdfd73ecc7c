"""VideoLLaMA 3: any resolution, images and video; frames may come without what did not change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from tokencover.errors import InputError
from tokencover.families import patch_grids
from tokencover.families.family import Family
from tokencover.families.layout import (
    Layout,
    Media,
    grid,
    keep_tokens,
    read_rows,
    require,
)

COMPRESSION = "video_compression_mask"
"""Which tokens of all videos together the processor has kept."""


def find_layouts(media: Media) -> tuple[list[Layout], list[Layout]]:
    """One grid for each image and each video, without the tokens that the processor left out."""
    images = _read_grids(media.images, "image")
    videos = _read_grids(media.videos, "video")
    mask = (media.call or {}).get(COMPRESSION)
    return images, videos if mask is None or not videos else _compress(videos, mask)


def _read_grids(arguments: Mapping[str, Any] | None, kind: str) -> list[Layout]:
    if arguments is None:
        return []
    patches = read_rows(require(arguments, f"{kind}_grid_thw"))
    sides = [int(side) for side in require(arguments, f"{kind}_merge_sizes")]
    return [
        grid(frames, rows // side, columns // side)
        for (frames, rows, columns), side in zip(patches, sides, strict=True)
    ]


def _compress(videos: list[Layout], mask: Tensor) -> list[Layout]:
    sizes = [len(video) for video in videos]
    repeats, rest = divmod(len(mask), sum(sizes))  # beam search repeats every entry
    if rest or not repeats:
        raise InputError(
            f"{COMPRESSION} has {len(mask)} entries, but the videos have {sum(sizes)} tokens; pass "
            f"all that the processor returns for the same videos"
        )
    parts = mask[::repeats].cpu().bool().split(sizes)
    return [keep_tokens(video, part) for video, part in zip(videos, parts, strict=True)]


FAMILY = Family(
    name="VideoLLaMA 3",
    model_types=("video_llama_3",),
    layouts=find_layouts,
    folding=patch_grids.FOLDING,
    towers=("model.vision_model",),
    projector="model.projector",
    call_names=(COMPRESSION,),
)
