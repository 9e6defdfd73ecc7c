"""Dropping all visual tokens before a late decoder block, and telling what was there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import torch
from torch import Tensor

from tokencover.budget import round_half_up
from tokencover.errors import InputError
from tokencover.methods.base import Choice, Details, View

NOTE: Final = "final_wipe"
CENTERS: Final = ("prompt_centers", "visual_centers")


def check_wipe(block: object) -> None:
    """Refuse what is neither a block nor a share of the depth."""
    is_number = isinstance(block, int) and not isinstance(block, bool) and block >= 1
    is_share = isinstance(block, float) and 0 < block < 1
    if not is_number and not is_share:
        raise InputError(
            "a wipe comes before a block, for example 24, or at a share of the depth between 0 and "
            f"1, for example 0.75; got {block!r}."
        )


def find_wipe_block(block: int | float, depth: int, stages: Sequence[int]) -> int:
    """The number of the block before which all visual tokens are dropped.

    Parameters
    ----------
    block : int or float
        Its number, or a share of the depth; the nearest block, halves upwards.
    depth : int
        Number of decoder blocks.
    stages : sequence of int
        Where tokens are dropped before that.

    Raises
    ------
    InputError
        If it is not after all of these, or not in the decoder.
    """
    number = block if isinstance(block, int) else round_half_up(Fraction(block) * depth)
    first = max((0, *stages)) + 1
    if first >= depth:
        raise InputError(
            f"there is no block left to wipe before: tokens are dropped before block {first - 1} "
            f"of {depth}. Let the method act earlier."
        )
    if not first <= number < depth:
        raise InputError(
            f"wiping before block {number} (asked for as {block!r}) is not possible: the model has "
            f"{depth} blocks, and this method needs those before block {first}. Give a block from "
            f"{first} to {depth - 1}."
        )
    return number


def wipe(view: View) -> Choice:
    """Keep nothing; tell what was there, and what the method said of it."""
    nothing = view.mask.new_zeros(0, dtype=torch.int64)
    said: list[Mapping[str, Any]] = view.notes.get(NOTE, [])
    if len(said) != len(view.mask):  # the method has dropped all of some sample: whose, is unknown
        said = [{}] * len(view.mask)
    details = []
    for mask, positions, each in zip(view.mask, view.positions, said, strict=True):
        here = positions[mask]
        centers = {name: _find(each[name], here) for name in CENTERS if name in each}
        everything = torch.arange(len(here), device=here.device)
        details.append(Details({**each, **centers, "wiped": everything}))
    return Choice([nothing] * len(view.mask), details=details)


def remember(view: View, choice: Choice) -> None:
    """Note what a method said, for the trace: the last stage of a pass is the one that is told."""
    noted = []
    for positions, said in zip(view.positions, choice.details, strict=False):
        centers = {
            name: positions[said[name].to(positions.device)] for name in CENTERS if name in said
        }
        noted.append({**said, **centers})
    view.notes[NOTE] = noted


def _find(wanted: Tensor, positions: Tensor) -> Tensor:
    """Indices of those wanted positions that are there; positions ascend."""
    found = torch.isin(wanted, positions)
    return torch.searchsorted(positions, wanted[found])
