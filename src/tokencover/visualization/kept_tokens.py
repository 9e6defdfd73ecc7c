"""The tokens that were left: where each lies, what it was chosen for, and how to say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tokencover.errors import InputError
from tokencover.pruning import Trace

Role = Literal["prompt", "visual", "kept"]
"""A prompt centre, a visual centre, or a token of a method that does not tell them apart."""
ROLE_TEXTS: dict[Role, str] = {
    "prompt": "chosen for the question",
    "visual": "chosen to cover the rest",
    "kept": "kept",
}
"""What each role, and so each colour, means."""
_UNTOLD: tuple[Role, int | None] = ("kept", None)


@dataclass(frozen=True, slots=True)
class KeptToken:
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
class KeptTokens:
    """All tokens of a sample that were left.

    Attributes
    ----------
    placed : tuple of KeptToken
        Those that lie somewhere in a picture.
    placeless : int
        Newline and class tokens.
    merged : int
        States that belong to no single token.
    """

    placed: tuple[KeptToken, ...]
    placeless: int
    merged: int

    def of_view(self, medium: int, frame: int) -> list[KeptToken]:
        """Those of one view or frame of a picture."""
        return [token for token in self.placed if (token.medium, token.frame) == (medium, frame)]

    def count(self, role: Role) -> int:
        """How many have this role."""
        return sum(token.role == role for token in self.placed)


def find_kept_tokens(trace: Trace, words: Sequence[str] | None = None) -> KeptTokens:
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
    for index, (medium, frame, row, column) in _list_left_tokens(trace):
        if index < 0:
            merged += 1
        elif row < 0:
            placeless += 1
        else:
            role, order = roles.get(index, _UNTOLD)
            placed.append(KeptToken(medium, frame, row, column, role, order, spoken.get(index)))
    return KeptTokens(tuple(placed), placeless, merged)


def _list_left_tokens(trace: Trace) -> list[tuple[int, list[int]]]:
    """Index and place of every token that was left."""
    index = trace.kept
    places = torch.stack([trace.medium, trace.frame, trace.row, trace.column], -1)
    wiped: Tensor | None = trace.details.get("wiped")
    if wiped is not None:
        index = torch.cat([index, wiped.to(index)])
        places = torch.cat([places, trace.grid_locations[wiped].to(places)])
    return list(zip(index.tolist(), places.tolist(), strict=True))


def describe(trace: Trace) -> str:
    """One line: how many tokens were kept, and what for."""
    kept = find_kept_tokens(trace)
    left = len(kept.placed) + kept.placeless + kept.merged
    told = [f"{left} of {trace.visual_tokens} visual tokens kept"]
    if "wiped" in trace.details:
        told[0] += f" until the last blocks and {len(trace.kept)} in them"
    centers: tuple[Role, Role] = ("prompt", "visual")
    told += [f"{kept.count(role)} {ROLE_TEXTS[role]}" for role in centers if kept.count(role)]
    if kept.placeless:
        told.append(f"{kept.placeless} without a place (newline or class tokens)")
    if kept.merged:
        told.append(f"{kept.merged} merged of several")
    return ", ".join(told)


def describe_token(token: KeptToken) -> str:
    """One line about one token: where it lies, when it was chosen, and by which word."""
    told = [f"row {token.row + 1}, column {token.column + 1}"]
    if token.order is not None:
        told.append(f"{token.role} centre {token.order}")
    else:
        told.append("kept")
    if token.word is not None:
        told.append(f"chosen by “{token.word}”")
    return " · ".join(told)


def describe_view(kept: KeptTokens, medium: int, frame: int, grid: tuple[int, int]) -> str:
    """A few words about one view: its grid, and how much of it was kept."""
    rows, columns = grid
    return f"{rows} x {columns} tokens, {len(kept.of_view(medium, frame))} kept"
