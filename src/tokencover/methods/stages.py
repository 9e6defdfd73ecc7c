"""Places in a decoder, for methods that were published for one of a certain depth."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tokencover.budget import round_half_up
from tokencover.errors import InputError


def scaled_stages(published: Sequence[int], published_depth: int, depth: int) -> tuple[int, ...]:
    """The same places in a decoder of another depth.

    Parameters
    ----------
    published : sequence of int
        Before which blocks a method acts, ascending, in a decoder of `published_depth` blocks.
    published_depth, depth : int
        Number of blocks there, and here.

    Returns
    -------
    tuple of int
        The nearest blocks at the same share of the depth, each at least one behind the one before
        it, the first not before block 1: a block must have run to be looked at. Places behind the
        last block are left out.
    """
    found: list[int] = []
    for block in published:
        here = round_half_up(Fraction(block * depth, published_depth))
        found.append(max(here, found[-1] + 1 if found else 1))
    within = tuple(block for block in found if block < depth)
    if not within:
        raise InputError(
            f"a decoder of {depth} blocks has no place behind its first block: use a method that "
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
