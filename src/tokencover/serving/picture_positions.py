"""Positions of a prompt whose pictures are short: of the text, and of the tokens that were kept.

An engine counts tokens. To a model that was trained on whole pictures the text after one lies as
far away as all of its tokens are wide, and a kept token where it was. The first is known as soon as
the prompt is, because it depends on the size of the pictures alone: `place_text`. The second is
known when the choice is made, and travels with the kept states, in extra columns (`pack_places`);
it is added when the decoder begins (`PlaceShifts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_BASE = 256
"""Every float type that models run in holds whole numbers up to here exactly."""
COLUMNS_OF_A_PLACE = 2


@dataclass(frozen=True, slots=True)
class PlacedPicture:
    """One picture in a prompt.

    Attributes
    ----------
    offset : int
        Place of its first kept token in the short prompt.
    kept : int
        How many tokens of it are there.
    advance : int
        How far positions go on over it: the number of all its tokens, or, where positions have
        rows and columns, the longer side of its grid.
    """

    offset: int
    kept: int
    advance: int


def place_text(length: int, pictures: Sequence[PlacedPicture]) -> tuple[Tensor, int]:
    """Give positions to a short prompt as if its pictures were whole.

    Parameters
    ----------
    length : int
        Tokens of the short prompt.
    pictures : sequence of PlacedPicture
        In the order of the prompt.

    Returns
    -------
    positions : Tensor
        ``(3, length)`` int64, in all rows alike: of every text token its position, of every token
        of a picture the position at which the picture begins.
    delta : int
        What is to be added to the number of a generated token to get its position.
    """
    row = torch.empty(length, dtype=torch.int64)
    place = position = 0
    for picture in pictures:
        text = picture.offset - place
        row[place : picture.offset] = torch.arange(position, position + text)
        position += text
        row[picture.offset : picture.offset + picture.kept] = position
        place, position = picture.offset + picture.kept, position + picture.advance
    row[place:] = torch.arange(position, position + length - place)
    return row.expand(3, -1).clone(), position - place


def pack_places(places: Tensor, like: Tensor) -> Tensor:
    """Write places ``(k, axes)`` as columns ``(k, 2 * axes)`` that lose nothing in 16 bits."""
    digits = torch.stack([places // _BASE, places % _BASE], dim=-1).flatten(1)
    return digits.to(like)


def unpack_places(columns: Tensor) -> Tensor:
    """The places that `pack_places` wrote."""
    digits = columns.round().to(torch.int64).unflatten(1, (-1, COLUMNS_OF_A_PLACE))
    places: Tensor = digits[..., 0] * _BASE + digits[..., 1]
    return places


class PlaceShifts:
    """Adds where kept tokens lie in their pictures to the positions of a step.

    The tensors it gives lie at one address always, so that captured graphs stay valid.

    Parameters
    ----------
    axes : tuple of int
        The rows of the positions that places belong to: ``(0,)`` where positions are numbers,
        ``(1, 2)`` where they are times, rows and columns.
    longest : int
        The longest step there will be.
    """

    def __init__(self, axes: tuple[int, ...], longest: int = 0) -> None:
        self._axes, self._longest = axes, longest
        self._shifts = torch.zeros(3, 0, dtype=torch.int64)
        self._sums = torch.zeros(3, 0, dtype=torch.int64)
        self._written = 0

    @property
    def columns(self) -> int:
        """How many columns after the states hold places."""
        return COLUMNS_OF_A_PLACE * len(self._axes)

    def take_from(self, rows: Sequence[Tensor], visual: Tensor | None) -> list[Tensor]:
        """Note the places of a step's visual tokens, and give their states without them.

        Parameters
        ----------
        rows : sequence of Tensor
            Each ``(k, d + columns)``, in the order of the step.
        visual : Tensor or None
            ``(s,)`` bool, which tokens of the step they are; None if there are none.
        """
        self._shifts[:, : self._written] = 0
        self._written = 0
        if visual is None or not len(rows):
            return list(rows)
        places = torch.cat([unpack_places(each[:, -self.columns :]) for each in rows])
        length = len(visual)
        self._grow(length, places.device)
        spots = visual.nonzero().squeeze(-1).to(places.device)
        for column, axis in enumerate(self._axes):
            self._shifts[axis, spots] = places[:, column]
        self._written = length
        return [each[:, : -self.columns] for each in rows]

    def add_to(self, positions: Tensor) -> Tensor:
        """The positions ``(3, s)`` of a step, each kept token where it was."""
        length = positions.shape[1]
        self._grow(length, positions.device)
        sums = self._sums[:, :length]
        torch.add(positions, self._shifts[:, :length], out=sums)
        return sums

    def _grow(self, length: int, device: torch.device) -> None:
        if self._shifts.shape[1] >= length and self._shifts.device == device:
            return
        # One more than the longest step: slices of it then look alike to a compiler.
        width = max(length, self._longest) + 1
        larger = torch.zeros(3, width, dtype=torch.int64, device=device)
        larger[:, : self._shifts.shape[1]] = self._shifts.to(device)
        self._shifts, self._sums = larger, torch.zeros_like(larger)
