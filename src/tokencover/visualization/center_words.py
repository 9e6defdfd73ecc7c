"""The words that chose the prompt centres, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from tokencover.errors import InputError
from tokencover.pruning import FIRST_CONTROL, Reader, TokenLine, Trace

NO_TEXT = "(space)"
"""What a word that is nothing but whitespace is called."""


def words_of_centers(trace: Trace, input_ids: Tensor, tokenizer: Any) -> list[str]:
    """The prompt word nearest to each prompt centre, as text.

    Parameters
    ----------
    trace : Trace
        What happened to the sample.
    input_ids : Tensor
        ``(b, s)``, what the model was given: the whole batch.
    tokenizer
        The model's tokenizer or processor.

    Returns
    -------
    list of str
        One for each of ``trace.prompt_centers``. A word that was cut into several tokens is given
        whole, in scripts that have capitals; elsewhere it is the token. Empty if the method does
        not tell which words chose its centres.
    """
    places: list[int] = trace.center_prompt_positions.tolist()
    if input_ids.dim() != 2 or trace.sample >= len(input_ids):
        raise InputError(
            f"input_ids of shape {tuple(input_ids.shape)} have no row {trace.sample}: pass "
            "those of the whole batch, (batch, length)."
        )
    row = input_ids[trace.sample].tolist()
    if places and max(places) >= len(row):
        raise InputError(
            f"a prompt word stands at place {max(places)} of the sequence, but input_ids have "
            f"{len(row)} tokens: pass those that the model was given."
        )
    line = Reader(getattr(tokenizer, "tokenizer", tokenizer)).read(row)
    found = {place: _find_word(line, place) for place in set(places)}
    return [found[place] for place in places]


def count_words(words: Sequence[str]) -> list[tuple[str, int]]:
    """Every word with the number of centres it chose, most first; equals as they come."""
    return Counter(words).most_common()


def number_words(words: Sequence[str] | None) -> dict[str, int]:
    """The number that stands for each word in a picture: 1 for the word that chose most."""
    return {word: number for number, (word, _) in enumerate(count_words(words or ()), start=1)}


def _find_word(line: TokenLine, token: int) -> str:
    """The word that a token is part of."""
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
