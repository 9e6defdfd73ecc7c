"""A row of tokens as a line of text in which places can be compared and traced back to tokens.

Everything is compared as text without whitespace, never as token ids: a tokenizer may merge the
last space or newline of the chat template with the first word of the question, and the same mark
may be cut into other tokens beside another neighbour. Special tokens are compared by id alone, so
a user who types the name of a special token as plain text does not end a turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

# One private character for every special token, one for what has no text, one for each piece of a
# picture. They are the last of Unicode, so that `>= FIRST_CONTROL` tells them from text.
FIRST_CONTROL, _UNKNOWN, VISUAL = "\U000f0000", "\U0010fffe", "\U0010ffff"
CONTROL = f"[{FIRST_CONTROL}-{VISUAL}]"
_BROKEN = "\ufffd"

# Added tokens that look like marks (<row_1_col_1>, <think>, [IMG]) even if not declared special.
_BRACKETED = re.compile(r"<\S+>|\[\S+\]")


@dataclass(frozen=True, slots=True)
class TokenLine:
    """A row of ids as text without whitespace.

    Attributes
    ----------
    text : str
        The characters; a special token or a piece of a picture is one private character.
    owners : list of tuple of int
        For every character, the first token it comes from and the token after its last.
    spaced : list of bool
        Whether whitespace stood before the character.
    """

    text: str
    owners: list[tuple[int, int]]
    spaced: list[bool]

    def edge(self, at: int) -> bool:
        """Whether no word runs across the place before character `at`."""
        if at in (0, len(self.text)) or self.spaced[at]:
            return True
        return not (self.text[at - 1].isalnum() and self.text[at].isalnum())

    def find(self, mark: str, start: int = 0) -> Iterator[int]:
        """The places from `start` on where `mark` begins outside a word."""
        at = self.text.find(mark, start)
        while at >= 0:
            if self.edge(at):
                yield at
            at = self.text.find(mark, at + 1)

    def tokens(self, characters: Sequence[int]) -> Iterator[int]:
        """The tokens of ordinary characters, with the whitespace tokens between neighbours."""
        previous = -2
        for at in characters:
            if self.text[at] >= FIRST_CONTROL:
                continue
            start, stop = self.owners[at]
            yield from range(self.owners[at - 1][1] if previous == at - 1 else start, stop)
            previous = at


class Reader:
    """Turns ids into lines for one tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        special = set(tokenizer.all_special_ids)
        for token, added in getattr(tokenizer, "added_tokens_decoder", {}).items():
            if added.special or _BRACKETED.fullmatch(added.content):
                special.add(token)
        self._controls = {
            token: chr(ord(FIRST_CONTROL) + rank) for rank, token in enumerate(sorted(special))
        }
        self.ends = self._find_named("bos_token_id") + self._find_named("eos_token_id")
        # A piece is read after another token, since decoders drop the space at the very start.
        self._before = self._encode("a")[-1:]
        self._before_text = self._decode(self._before)
        self._pieces: dict[int, str] = {}

    def read(self, ids: Sequence[int], visual: Sequence[bool] | None = None) -> TokenLine:
        """The text of a row; positions marked `visual` are pieces of a picture."""
        characters: list[str] = []
        owners: list[tuple[int, int]] = []
        gaps: list[bool] = []
        spaced, start = False, 0
        while start < len(ids):
            if visual is not None and visual[start]:
                text, stop = VISUAL, start + 1
            else:
                text, stop = self._read_next(ids, start)
            for character in text:
                if character.isspace():
                    spaced = True
                    continue
                characters.append(character)
                owners.append((start, stop))
                gaps.append(spaced)
                spaced = False
            start = stop
        return TokenLine("".join(characters), owners, gaps)

    def condense(self, text: str) -> str:
        """`text` as it would stand in a line."""
        return self.read(self._encode(text)).text

    def spells(self, text: str) -> bool:
        """Whether the tokenizer has tokens for all of `text`."""
        unknown = self._find_named("unk_token_id")
        return not unknown or unknown not in self.condense(text)

    def _find_named(self, name: str) -> str:
        """The character of a special token that the tokenizer knows by name, if it has it."""
        return self._controls.get(getattr(self._tokenizer, name, None), "")

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def _decode(self, ids: Sequence[int]) -> str:
        return str(
            self._tokenizer.decode(
                list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )

    def _read_next(self, ids: Sequence[int], start: int) -> tuple[str, int]:
        """The text at `start`, with the token after it: several tokens may spell a character."""
        text, stop = self._read_piece(ids[start]), start + 1
        while _BROKEN in text and stop < len(ids) and _BROKEN in self._read_piece(ids[stop]):
            stop += 1
            text = self._decode_after(ids[start:stop])
        return text, stop

    def _read_piece(self, token: int) -> str:
        if token in self._controls:
            return self._controls[token]
        if token not in self._pieces:
            text = self._decode_after([token]) if token >= 0 else ""
            self._pieces[token] = text or _UNKNOWN
        return self._pieces[token]

    def _decode_after(self, ids: Sequence[int]) -> str:
        text = self._decode([*self._before, *ids]).removeprefix(self._before_text)
        return re.sub(CONTROL, _BROKEN, text)
