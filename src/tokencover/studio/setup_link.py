"""A setup of the studio as the end of an address, so that it can be shared by link.

Links are written by other people: every value is checked, and a wrong one is left out and told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final
from urllib.parse import urlencode

LONGEST_TEXT: Final = 2000
"""Characters of a question or a method in a link."""
MOST_TOKENS: Final = 1_000_000
MOST_SCENES: Final = 1_000_000
OWN: Final = -1


@dataclass(frozen=True, slots=True)
class Setup:
    """What is asked, and how tokens are chosen.

    Attributes
    ----------
    question : str
        What is asked.
    medium : "picture" or "clip"
        What it is asked about.
    scene : int
        Which scene or clip of pebble's.
    method, other : str
        The method, and the one to compare it with ("" for none), as the command line writes them.
    budget : int
        Visual tokens to keep.
    split : str
        How MoB divides them.
    after : int
        Decoder blocks that run before pruning, for methods that can choose; `OWN` for as many as
        each has by itself.
    uploaded : int
        1 if an uploaded file was asked about, which is not in the link; else 0.
    """

    question: str = ""
    medium: str = "picture"
    scene: int = 0
    method: str = "mob"
    other: str = ""
    budget: int = 64
    split: str = "paper"
    after: int = OWN
    uploaded: int = 0


_LIMITS: Final = {
    "scene": (0, MOST_SCENES),
    "budget": (1, MOST_TOKENS),
    "after": (0, 1000),
    "uploaded": (0, 1),
}


def write_query(setup: Setup) -> str:
    """Write the setup as the part of an address after "?"; what is as usual is left out."""
    usual = Setup()
    told = {
        field.name: getattr(setup, field.name)
        for field in fields(Setup)
        if getattr(setup, field.name) != getattr(usual, field.name)
    }
    return urlencode(told)


def read_query(
    query: Mapping[str, str], media: Sequence[str] = ("picture", "clip")
) -> tuple[Setup, list[str]]:
    """Read a setup from the parameters of an address.

    Parameters
    ----------
    query : mapping
        The parameters.
    media : sequence of str
        What the model can be asked about; the first, if the address does not say.

    Returns
    -------
    setup
        With usual values where nothing, or nothing right, was said.
    faults
        What was left out, one sentence each.
    """
    setup, faults = Setup(medium=media[0]), []
    for field in fields(Setup):
        if field.name not in query:
            continue
        try:
            changed: dict[str, Any] = {
                field.name: _read_value(field.name, query[field.name], media)
            }
        except ValueError as error:
            faults.append(f"the link's {field.name} was left out: {error}")
        else:
            setup = replace(setup, **changed)
    return setup, faults


def _read_value(name: str, text: str, media: Sequence[str]) -> str | int:
    if name in _LIMITS:
        least, most = _LIMITS[name]
        if not text.isascii() or not text.isdigit() or not least <= int(text[:9]) <= most:
            raise ValueError(f"{text[:40]!r} is no whole number from {least} to {most}.")
        return int(text[:9])
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"it has {len(text)} characters, at most {LONGEST_TEXT} are read.")
    if name == "medium" and text not in media:
        raise ValueError(
            f"{text[:40]!r} is not what this model is asked about: {', '.join(media)}."
        )
    return text
