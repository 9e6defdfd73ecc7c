"""Which tokens of a tower attend to each other: it may pack pictures, or cut them into windows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tokencover.errors import InputError


def number_segments(lengths: Sequence[Tensor | int], index: Tensor) -> Tensor:
    """``(c, p)`` int64: tokens of one number attend to each other; -1 beyond a crop.

    Parameters
    ----------
    lengths : sequence
        For each tower call, in order, the cumulated lengths of its segments from 0 on (the
        ``cu_seqlens`` of packed attention), or how many tokens it had, if each crop is a segment.
    index : Tensor
        ``(c, p)`` int64, place of each token of a crop among all tokens of the towers; -1 beyond.

    Raises
    ------
    InputError
        If a segment reaches over several crops.
    """
    there = index >= 0
    crops = torch.arange(len(index)).unsqueeze(-1).expand_as(index)
    crop_of = torch.zeros(int(index.max()) + 1, dtype=torch.int64)
    crop_of[index[there]] = crops[there]
    segment_of, start = torch.zeros_like(crop_of), 0
    for each in lengths:
        if isinstance(each, int):
            end = start + each
            segment_of[start:end] = crop_of[start:end]
        else:
            begins, ends = bound_segments(crop_of, start + each.cpu().long())
            end = int(ends[-1])
            places = torch.arange(start, end)
            # Larger than any number of a crop, so that calls of both kinds stay apart.
            segment_of[places] = len(index) + begins[torch.searchsorted(ends, places, right=True)]
        start = end
    return torch.where(there, segment_of[index.clamp(min=0)], -1)


def bound_segments(crop_of: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """Begins and ends of the segments that are not empty; refused if one reaches over crops.

    Parameters
    ----------
    crop_of : Tensor
        ``(tokens,)`` int64, the crop of each.
    ends : Tensor
        ``(s + 1,)`` int64, where segments begin and end.
    """
    begins, ends = ends[:-1], ends[1:]
    begins, ends = begins[ends > begins], ends[ends > begins]
    if bool((crop_of[begins] != crop_of[ends - 1]).any()):
        raise InputError(
            "the vision tower attends from frame to frame here, so that no frame has attention of "
            "its own: use a method that acts in the decoder, for example tc.MoB."
        )
    return begins, ends
