"""Positions without gaps, for methods that number the kept tokens anew."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

from torch import Tensor, nn

from tokencover.errors import InputError, TokenCoverWarning
from tokencover.families import Family
from tokencover.methods import Method, name_method


def keep_positions(method: Method, family: Family, own_masks: bool) -> Method:
    """Return the method with ``positions="original"`` where a model cannot reindex, with a note.

    Parameters
    ----------
    method : Method
        What the caller wants to run.
    family : Family
        Says what the positions of the model are.
    own_masks : bool
        Whether masks are cut from those of the whole text.
    """
    if method.positions == "original" or not (family.several_axes or own_masks):
        return method
    name = type(method).__name__
    reason = "its attention windows count original positions"
    if family.several_axes:
        reason = "it has multi-axis position IDs (M-RoPE)"
    changed = _with_original_positions(method)
    if changed is None:
        raise InputError(
            f"{name} uses positions='reindex', which {family.name} does not support because "
            f"{reason}. Give {name} a field positions: str = 'original'."
        )
    warnings.warn(
        f"{name} uses positions='reindex', which {family.name} does not support because {reason}. "
        "Using positions='original'. To silence this note, pass positions='original', or on the "
        f"command line {name_method(changed) or 'positions=original'}.",
        TokenCoverWarning,
        stacklevel=3,
    )
    return changed


def _with_original_positions(method: Method) -> Method | None:
    """A copy that keeps positions; None for a method whose positions are not a setting."""
    settings = {each.name for each in dataclasses.fields(method) if each.init}  # type: ignore[arg-type]
    if "positions" in settings:
        return dataclasses.replace(method, positions="original")  # type: ignore[type-var]
    inner = getattr(method, "inner", None)
    changed = _with_original_positions(inner) if isinstance(inner, Method) else None
    return None if changed is None else dataclasses.replace(method, inner=changed)  # type: ignore[type-var]


class Renumbering:
    """Gives the tokens that are left the positions 0, 1, 2, ... and their rotation tables.

    Parameters
    ----------
    decoder : nn.Module
        The text model; it turns positions into rotations by its ``rotary_emb``.
    """

    def __init__(self, decoder: nn.Module) -> None:
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
