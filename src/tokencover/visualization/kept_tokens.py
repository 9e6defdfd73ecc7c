"""The kept tokens: grid location, role, and the word that selected them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tokencover.colors import Role
from tokencover.errors import InputError
from tokencover.pruning import FIRST_CONTROL, Reader, TokenLine, Trace

ROLE_TEXTS: dict[Role, str] = {
    "prompt": "chosen for the question",
    "visual": "chosen to cover the rest",
    "kept": "kept",
}
"""The meaning of each role and its color."""
_UNKNOWN_ROLE: tuple[Role, int | None] = ("kept", None)


@dataclass(frozen=True, slots=True)
class KeptToken:
    """One kept token: its medium, frame, row and column in the trace, and its role.

    `order` is 1 for the first prompt or visual center, None if the method has no order. `word` is
    the word nearest to a prompt center, if words were given.
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
    """All kept tokens of a sample.

    `placed` are those with a grid location, `placeless` counts newline and class tokens, `merged`
    counts hidden states that belong to no single token.
    """

    placed: tuple[KeptToken, ...]
    placeless: int
    merged: int

    def of_view(self, medium: int, frame: int) -> list[KeptToken]:
        """Return the tokens of one view or frame of an image or video."""
        return [token for token in self.placed if (token.medium, token.frame) == (medium, frame)]

    def count(self, role: Role) -> int:
        """Count the tokens of a role."""
        return sum(token.role == role for token in self.placed)


def get_kept_tokens(trace: Trace, words: Sequence[str] | None = None) -> KeptTokens:
    """Read the tokens to draw from a trace.

    If the method dropped everything before the last layers, these are the tokens kept until then.
    `words` has the word of each prompt center, see `words_of_centers`.
    """
    if words and len(words) != len(trace.prompt_centers):
        raise InputError(
            f"{len(words)} words were given for {len(trace.prompt_centers)} prompt centers: pass "
            "one word per center, see tokencover.visualization.words_of_centers."
        )
    roles: dict[int, tuple[Role, int | None]] = {}
    for rank, index in enumerate(trace.visual_centers.tolist(), start=1):
        roles[index] = "visual", rank
    for rank, index in enumerate(trace.prompt_centers.tolist(), start=1):
        roles[index] = "prompt", rank
    spoken = dict(zip(trace.prompt_centers.tolist(), words or (), strict=False))
    placed, placeless, merged = [], 0, 0
    for index, (medium, frame, row, column) in _list_kept(trace):
        if index < 0:
            merged += 1
        elif row < 0:
            placeless += 1
        else:
            role, order = roles.get(index, _UNKNOWN_ROLE)
            placed.append(KeptToken(medium, frame, row, column, role, order, spoken.get(index)))
    return KeptTokens(tuple(placed), placeless, merged)


def _list_kept(trace: Trace) -> list[tuple[int, list[int]]]:
    """Return index and grid location of every kept token."""
    index = trace.kept
    places = torch.stack([trace.medium, trace.frame, trace.row, trace.column], -1)
    wiped: Tensor | None = trace.details.get("wiped")
    if wiped is not None:
        index = torch.cat([index, wiped.to(index)])
        places = torch.cat([places, trace.grid_locations[wiped].to(places)])
    return list(zip(index.tolist(), places.tolist(), strict=True))


def describe(trace: Trace) -> str:
    """Describe in one line how many tokens were kept, and what for."""
    kept = get_kept_tokens(trace)
    count = len(kept.placed) + kept.placeless + kept.merged
    parts = [f"{count} of {trace.visual_tokens} visual tokens kept"]
    if "wiped" in trace.details:
        parts[0] += f" until the last layers and {len(trace.kept)} in them"
    centers: tuple[Role, Role] = ("prompt", "visual")
    parts += [f"{kept.count(role)} {ROLE_TEXTS[role]}" for role in centers if kept.count(role)]
    if kept.placeless:
        parts.append(f"{kept.placeless} without a grid location (newline or class tokens)")
    if kept.merged:
        parts.append(f"{kept.merged} merged of several")
    return ", ".join(parts)


def describe_token(token: KeptToken) -> str:
    """Describe one token in a line: grid location, order of selection, word."""
    parts = [f"row {token.row + 1}, column {token.column + 1}"]
    if token.order is not None:
        parts.append(f"{token.role} center {token.order}")
    else:
        parts.append("kept")
    if token.word is not None:
        parts.append(f"chosen by “{token.word}”")
    return " · ".join(parts)


def describe_view(kept: KeptTokens, medium: int, frame: int, grid: tuple[int, int]) -> str:
    """Describe one view: its grid, and how many of its tokens were kept."""
    rows, columns = grid
    return f"{rows} x {columns} tokens, {len(kept.of_view(medium, frame))} kept"


NO_TEXT = "(space)"
"""Shown for a word of whitespace only."""


def words_of_centers(trace: Trace, input_ids: Tensor, tokenizer: Any) -> list[str]:
    """Return the word of the prompt nearest to each prompt center.

    Parameters
    ----------
    trace : Trace
        What happened to the sample.
    input_ids : Tensor
        ``(b, s)``, the input of the model: the whole batch.
    tokenizer
        The model's tokenizer or processor.

    Returns
    -------
    list of str
        One for each of ``trace.prompt_centers``. A word of several tokens is returned whole in
        scripts with capitals; elsewhere it is the token. Empty if the method does not record which
        prompt tokens selected its centers.
    """
    positions: list[int] = trace.center_prompt_positions.tolist()
    if input_ids.dim() != 2 or trace.sample >= len(input_ids):
        raise InputError(
            f"input_ids of shape {tuple(input_ids.shape)} have no row {trace.sample}: pass "
            "those of the whole batch, (batch, length)."
        )
    row = input_ids[trace.sample].tolist()
    if positions and max(positions) >= len(row):
        raise InputError(
            f"the prompt token at position {max(positions)} is outside of input_ids, which have "
            f"{len(row)} tokens: pass the input_ids that the model was given."
        )
    line = Reader(getattr(tokenizer, "tokenizer", tokenizer)).read(row)
    words = {position: _get_word(line, position) for position in set(positions)}
    return [words[position] for position in positions]


def count_words(words: Sequence[str]) -> list[tuple[str, int]]:
    """Return every word with the number of centers it selected, most first, ties in their order."""
    return Counter(words).most_common()


def number_words(words: Sequence[str] | None) -> dict[str, int]:
    """Return the number that an image shows for each word: 1 for the word that selected most."""
    return {word: number for number, (word, _) in enumerate(count_words(words or ()), start=1)}


def _get_word(line: TokenLine, token: int) -> str:
    """Return the word that a token is part of."""
    mine = [at for at, (start, stop) in enumerate(line.owners) if start <= token < stop]
    if not mine or line.text[mine[0]] >= FIRST_CONTROL:
        return NO_TEXT
    first, last = mine[0], mine[-1]
    while not line.edge(first) and _ends_at_spaces(line.text[first - 1]):
        first -= 1
    while not line.edge(last + 1) and _ends_at_spaces(line.text[last + 1]):
        last += 1
    return line.text[first : last + 1]


def _ends_at_spaces(character: str) -> bool:
    """Whether words of this script end at spaces: a script without capitals may have none."""
    return character.isdigit() or character.lower() != character.upper()
