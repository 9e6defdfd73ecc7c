"""Which methods run on which families."""

from __future__ import annotations

from dataclasses import dataclass

from tokencover.methods import Method
from tokencover.runtime.families import FAMILIES
from tokencover.runtime.family import Family


@dataclass(frozen=True, slots=True)
class Claim:
    """A family that a method runs on.

    Attributes
    ----------
    family : Family
        The family.
    as_published : bool
        False if the method must be given ``positions="original"`` there, because the family's
        positions cannot be numbered anew.
    """

    family: Family
    as_published: bool


def claims(method: type[Method]) -> list[Claim]:
    """The families that a method runs on, in the order in which they are listed to users."""
    needs = set(method.card.needs)
    anew = method.positions == "reindex"
    return [
        Claim(family, as_published=not (anew and family.several_axes))
        for family in FAMILIES
        if _has(family, needs)
    ]


def _has(family: Family, needs: set[str]) -> bool:
    tower = family.tower_tokens is not None
    return (tower or not needs & {"encoder", "tower"}) and (family.tiles or "tiles" not in needs)
