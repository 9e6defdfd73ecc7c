"""FinalWipe, a part of TwigVLM (ICCV 2025, arXiv 2503.14075).

Place: before a late decoder block, at three quarters of the depth by default, on top of any other
method. Signal: none; by then the words have taken from the picture what they need.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

from tokencover.budget import round_half_up
from tokencover.errors import InputError
from tokencover.methods.base import (
    BudgetedMethod,
    Card,
    Choice,
    Method,
    TowerChoice,
    TowerView,
    View,
)

NOTE: Final = "final_wipe"
SAME_AS_INNER: Final = (
    "positions",
    "reads_prompt",
    "drops_newlines",
    "merges",
    "inside_tower_blocks",
    "proportional_attention",
)
CENTERS: Final = ("prompt_centers", "visual_centers")


@dataclass(frozen=True)
class FinalWipe(Method):
    """Run a method, and drop all visual tokens, newline tokens too, before a late block.

    With ``budget_mode="layer_mean"`` or ``"flops"`` the inner method keeps more tokens than it
    would alone, because the last blocks work on none. The trace's details tell which tokens were
    there until the wipe: ``details["wiped"]``, beside what the inner method has to say.

    Parameters
    ----------
    inner : Method
        What chooses tokens before that; all its blocks must lie before the wipe.
    block : int or float
        The block before which nothing stays: its number, or a share of the depth (0.75 is block 24
        of 32), taken to the nearest block.
    """

    name: ClassVar[str] = "final_wipe"
    card: ClassVar[Card] = Card(
        title="FinalWipe",
        year=2025,
        objective="none",
        place="after 24 of 32 decoder blocks, on top",
        signal="none",
        paper="2503.14075",
    )

    inner: Method
    block: int | float = 0.75

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Method) or isinstance(self.inner, FinalWipe):
            raise InputError(
                f"FinalWipe goes on top of another method, FinalWipe(tc.MoB(budget=64)) say; got "
                f"{self.inner!r}."
            )
        check_wipe(self.block)
        for name in SAME_AS_INNER:
            object.__setattr__(self, name, getattr(self.inner, name))

    def blocks(self, depth: int) -> Sequence[int]:
        """Those of the inner method, and the wipe."""
        stages = tuple(self.inner.blocks(depth))
        return (*stages, wipe_block(self.block, depth, stages))

    def shows_newlines(self, block: int, depth: int) -> bool:
        """Newline tokens are wiped with the rest, whatever the inner method does with them."""
        return block == self.blocks(depth)[-1] or self.inner.shows_newlines(block, depth)

    def schedule(self, left: int, total: int, depth: int) -> list[int]:
        """The visual tokens each decoder block works on: see `BudgetedMethod.schedule`."""
        if not isinstance(self.inner, BudgetedMethod):
            raise InputError(
                f"{type(self.inner).__name__} has no budget, so nothing is known of its schedule."
            )
        end = self.blocks(depth)[-1]
        return [*self.inner.schedule(left, total, depth)[:end], *[0] * (depth - end)]

    def choose(self, view: View) -> Choice:
        """What the inner method keeps, or nothing."""
        if view.block == self.blocks(view.depth)[-1]:
            return wiped(view)
        choice = self._wiped_inner.choose(view)
        remember(view, choice)
        return choice

    @functools.cached_property
    def _wiped_inner(self) -> Method:
        """The inner method, which counts on the wipe when it turns a budget into a number."""
        inner = copy.copy(self.inner)
        if isinstance(inner, BudgetedMethod):
            object.__setattr__(inner, "schedule", self.schedule)
        return inner

    def watched(self, depth: int) -> Sequence[int]:
        """As the inner method."""
        return self.inner.watched(depth)

    def encoder_blocks(self, depth: int, feature_block: int) -> Sequence[int] | None:
        """As the inner method."""
        return self.inner.encoder_blocks(depth, feature_block)

    def tower_blocks(self, depth: int, feature_block: int) -> Sequence[int]:
        """As the inner method."""
        return self.inner.tower_blocks(depth, feature_block)

    def choose_in_tower(self, view: TowerView) -> TowerChoice:
        """As the inner method."""
        return self.inner.choose_in_tower(view)


def check_wipe(block: object) -> None:
    """Refuse what is neither a block nor a share of the depth."""
    is_number = isinstance(block, int) and not isinstance(block, bool) and block >= 1
    is_share = isinstance(block, float) and 0 < block < 1
    if not is_number and not is_share:
        raise InputError(
            f"a wipe comes before a block, 24 say, or at a share of the depth between 0 and 1, "
            f"0.75 say; got {block!r}."
        )


def wipe_block(block: int | float, depth: int, stages: Sequence[int]) -> int:
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
        If it is not behind all of these, or not in the decoder.
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


def wiped(view: View) -> Choice:
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
        details.append({**each, **centers, "wiped": everything})
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
