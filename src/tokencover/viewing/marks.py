"""Which tokens are drawn: where each lies, what it was chosen for, and by which word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tokencover.errors import InputError
from tokencover.runtime import Trace

Role = Literal["prompt", "visual", "kept"]
"""A prompt centre, a visual centre, or a token of a method that does not tell them apart."""
_UNTOLD: tuple[Role, int | None] = ("kept", None)


@dataclass(frozen=True, slots=True)
class Mark:
    """One token that was left, and its place.

    Attributes
    ----------
    medium, frame, row, column : int
        Where it lies, as in the trace.
    role : Role
        What it was chosen for.
    order : int or None
        1 for the first prompt or visual centre that was chosen, and so on; None if the method does
        not tell.
    word : str or None
        For a prompt centre the word nearest to it, if words were given.
    """

    medium: int
    frame: int
    row: int
    column: int
    role: Role
    order: int | None = None
    word: str | None = None


@dataclass(frozen=True, slots=True)
class Marks:
    """All tokens of a sample that were left.

    Attributes
    ----------
    placed : tuple of Mark
        Those that lie somewhere in a picture.
    placeless : int
        Newline and class tokens.
    merged : int
        States that belong to no single token.
    """

    placed: tuple[Mark, ...]
    placeless: int
    merged: int

    def of_view(self, medium: int, frame: int) -> list[Mark]:
        """Those of one view or frame of a picture."""
        return [mark for mark in self.placed if (mark.medium, mark.frame) == (medium, frame)]

    def count(self, role: Role) -> int:
        """How many have this role."""
        return sum(mark.role == role for mark in self.placed)


def marks_of(trace: Trace, words: Sequence[str] | None = None) -> Marks:
    """Read from a trace what there is to draw.

    If the method dropped everything before the last blocks, these are the tokens that were there
    until then.

    Parameters
    ----------
    trace : Trace
        What happened to the sample.
    words : sequence of str, optional
        The word of each prompt centre: see `words_of_centers`.
    """
    if words and len(words) != len(trace.prompt_centers):
        raise InputError(
            f"{len(words)} words were given for {len(trace.prompt_centers)} prompt centres: give "
            "one each, as viewing.words_of_centers does."
        )
    roles: dict[int, tuple[Role, int | None]] = {}
    for rank, index in enumerate(trace.visual_centers.tolist(), start=1):
        roles[index] = "visual", rank
    for rank, index in enumerate(trace.prompt_centers.tolist(), start=1):
        roles[index] = "prompt", rank
    spoken = dict(zip(trace.prompt_centers.tolist(), words or (), strict=False))
    placed, placeless, merged = [], 0, 0
    for index, (medium, frame, row, column) in _left(trace):
        if index < 0:
            merged += 1
        elif row < 0:
            placeless += 1
        else:
            role, order = roles.get(index, _UNTOLD)
            placed.append(Mark(medium, frame, row, column, role, order, spoken.get(index)))
    return Marks(tuple(placed), placeless, merged)


def _left(trace: Trace) -> list[tuple[int, list[int]]]:
    """Index and place of every token that was left."""
    index = trace.kept
    places = torch.stack([trace.medium, trace.frame, trace.row, trace.column], -1)
    wiped: Tensor | None = trace.details.get("wiped")
    if wiped is not None:
        index = torch.cat([index, wiped.to(index)])
        places = torch.cat([places, trace.places[wiped].to(places)])
    return list(zip(index.tolist(), places.tolist(), strict=True))
