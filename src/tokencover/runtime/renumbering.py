"""Positions without gaps, for methods that number the kept tokens anew."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.methods import Method
from tokencover.runtime.family import Family


class Renumbering:
    """Gives the tokens that are left the positions 0, 1, 2, ... and their rotation tables.

    Parameters
    ----------
    decoder : nn.Module
        The text model; it turns positions into rotations by its ``rotary_emb``.
    """

    def __init__(self, decoder: nn.Module) -> None:
        self._rotary: Any = decoder.rotary_emb

    @classmethod
    def wanted_by(cls, method: Method, family: Family, decoder: nn.Module) -> Renumbering | None:
        """A renumbering, if the method asks for one.

        Raises
        ------
        InputError
            If it does, and the model's positions are not plain numbers.
        """
        if method.positions == "original":
            return None
        if family.several_axes:
            raise InputError(
                f"{type(method).__name__} numbers the kept tokens anew, but positions of "
                f"{family.name} are rows, columns and times, not numbers: give it "
                "positions='original'."
            )
        return cls(decoder)

    def rotation(self, states: Tensor, columns: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Positions ``(b, m)`` of the new tokens, and cosines and sines for them.

        Parameters
        ----------
        states : Tensor
            ``(b, m, d)``, of the new tokens.
        columns : Tensor
            ``(b, p + m)`` bool, which of the earlier and the new tokens are real.
        """
        numbers = (columns.cumsum(-1) - 1).clamp(min=0)[:, -states.shape[1] :]
        numbers = numbers.to(states.device)
        return numbers, self._rotary(states, position_ids=numbers)
