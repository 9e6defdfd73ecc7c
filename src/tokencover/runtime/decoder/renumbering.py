"""Positions without gaps, for methods that number the kept tokens anew."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.methods import Method
from tokencover.runtime.families import Family


class Renumbering:
    """Gives the tokens that are left the positions 0, 1, 2, ... and their rotation tables.

    Parameters
    ----------
    method : Method
        Who wants it, for messages.
    family : Family
        Says what the positions of the model are.
    decoder : nn.Module
        The text model; it turns positions into rotations by its ``rotary_emb``.

    own_masks : bool
        Whether masks are cut from those of the whole text.

    Raises
    ------
    InputError
        If the model's positions are not plain numbers, or its blocks do not see all tokens.
    """

    def __init__(self, method: Method, family: Family, decoder: nn.Module, own_masks: bool) -> None:
        if family.several_axes:
            raise InputError(
                f"{type(method).__name__} numbers the kept tokens anew, but positions of "
                f"{family.name} are rows, columns and times, not numbers: give it "
                "positions='original'."
            )
        if own_masks:
            raise InputError(
                f"{type(method).__name__} numbers the kept tokens anew, but blocks of this "
                f"{family.name} do not see all tokens before them, and what they see goes by the "
                "positions of the whole text: give it positions='original'."
            )
        self._rotary: Any = decoder.rotary_emb

    def number(self, states: Tensor, columns: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Give positions ``(b, m)`` to the new tokens, and cosines and sines for them.

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
