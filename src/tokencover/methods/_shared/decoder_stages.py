"""For methods that prune at several places in the decoder."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from tokencover.budget import round_half_up
from tokencover.errors import InputError
from tokencover.methods.base import View


@lru_cache(maxsize=256)
def scale_stages(published: tuple[int, ...], published_depth: int, depth: int) -> tuple[int, ...]:
    """The same places in a decoder of another depth.

    Parameters
    ----------
    published : tuple of int
        Before which blocks a method acts, ascending, in a decoder of `published_depth` blocks.
    published_depth, depth : int
        Number of blocks there, and here.

    Returns
    -------
    tuple of int
        The nearest blocks at the same share of the depth, each at least one after the one before
        it, the first not before block 1: a block must have run to be looked at. Places after the
        last block are left out.
    """
    found: list[int] = []
    for block in published:
        here = round_half_up(Fraction(block * depth, published_depth))
        found.append(max(here, found[-1] + 1 if found else 1))
    within = tuple(block for block in found if block < depth)
    if not within:
        raise InputError(
            f"a decoder of {depth} blocks has no place after its first block: use a method that "
            "acts before the decoder."
        )
    return within


def check_stages(stages: Sequence[int]) -> None:
    """Refuse blocks that do not ascend, or are none."""
    whole = all(isinstance(each, int) and not isinstance(each, bool) for each in stages)
    if not whole or not stages or list(stages) != sorted(set(stages)) or min(stages) < 0:
        raise InputError(
            f"stages must be the blocks after which to prune, ascending from 0 on, as (2, 6, 15); "
            f"got {stages!r}."
        )


def fit_stages(stages: tuple[int, ...], depth: int) -> tuple[int, ...]:
    """The same stages, if a decoder of this depth has a block after each; refused otherwise."""
    if stages[-1] >= depth:
        raise InputError(
            f"stages {stages} do not fit a model of {depth} blocks: the last may be {depth - 1} at "
            "most."
        )
    return stages


def count_by_block(present: Sequence[int], stages: Sequence[int], depth: int) -> list[int]:
    """The visual tokens each decoder block works on.

    Parameters
    ----------
    present : sequence of int
        Tokens before the first stage, and after each.
    stages : sequence of int
        The blocks before which tokens are dropped, ascending.
    depth : int
        Number of decoder blocks.
    """
    spans = pairwise((0, *stages, depth))
    return [
        count for count, (begin, end) in zip(present, spans, strict=True) for _ in range(begin, end)
    ]


@lru_cache(maxsize=256)
def shrink_evenly(total: int, share: Fraction, stages: int) -> tuple[int, ...]:
    """What each stage leaves when all keep the same share, and all together `share` of `total`.

    That is ``floor(total * share ** (i / stages))`` for ``i = 1 .. stages``, at least 1, without
    rounding errors.
    """
    return tuple(
        _find_root(int(total**stages * share**stage), stages, 1, total)
        for stage in range(1, stages + 1)
    )


def _find_root(value: int, degree: int, low: int, high: int) -> int:
    """The largest integer, of those from `low` to `high`, whose power is not above `value`."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**degree <= value else (low, middle - 1)
    return low


def check_text(view: View) -> None:
    """Refuse samples with nothing after their picture that could look at it."""
    silent = (~view.text_mask.any(-1)).nonzero().squeeze(-1).tolist()
    if silent:
        raise InputError(
            f"there is no text after the picture in samples {silent} of those with pictures, so "
            "nothing rates their visual tokens: put the question after the picture."
        )
