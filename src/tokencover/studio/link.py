"""A setup of the studio as the end of an address, to share it by link.

Links come from other people: every value is checked, and a wrong one is ignored with a warning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final
from urllib.parse import urlencode

MAX_TEXT_LENGTH: Final = 2000
"""Maximum characters of a question or a method in a link."""
MAX_TOKENS: Final = 1_000_000
MAX_SCENES: Final = 1_000_000
METHOD_DEFAULT: Final = -1


@dataclass(frozen=True, slots=True)
class Setup:
    """The question, and the settings of the method.

    `medium` is "image" or "video", `scene` the number of a drawn one. `method` and `other`, the
    method to compare with or "", are written as on the command line. `after` is `METHOD_DEFAULT`
    for each method's default. `uploaded` is 1 if the question was about a file, which is not in the
    link.
    """

    question: str = ""
    medium: str = "image"
    scene: int = 0
    method: str = "mob"
    other: str = ""
    budget: int = 64
    split: str = "paper"
    after: int = METHOD_DEFAULT
    uploaded: int = 0


_LIMITS: Final = {
    "scene": (0, MAX_SCENES),
    "budget": (1, MAX_TOKENS),
    "after": (0, 1000),
    "uploaded": (0, 1),
}


def write_query(setup: Setup) -> str:
    """Write the setup as the part of an address after "?", without defaults."""
    default = Setup()
    changed = {
        field.name: getattr(setup, field.name)
        for field in fields(Setup)
        if getattr(setup, field.name) != getattr(default, field.name)
    }
    return urlencode(changed)


def read_query(
    query: Mapping[str, str], media: Sequence[str] = ("image", "video")
) -> tuple[Setup, list[str]]:
    """Read a setup from the parameters of an address.

    The first of `media` is the default medium. Returns the setup, with defaults for invalid values,
    and one message for each of those.
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
            faults.append(f"the link's {field.name} was ignored: {error}")
        else:
            setup = replace(setup, **changed)
    return setup, faults


def _read_value(name: str, text: str, media: Sequence[str]) -> str | int:
    if name in _LIMITS:
        least, most = _LIMITS[name]
        if not text.isascii() or not text.isdigit() or not least <= int(text[:9]) <= most:
            raise ValueError(f"{text[:40]!r} is not an integer from {least} to {most}.")
        return int(text[:9])
    if len(text) > MAX_TEXT_LENGTH:
        raise ValueError(f"it has {len(text)} characters, at most {MAX_TEXT_LENGTH} are allowed.")
    if name == "medium" and text not in media:
        raise ValueError(
            f"{text[:40]!r} is not supported by this model, which takes: {', '.join(media)}."
        )
    return text
