"""How a chat template surrounds the user's text, learned by rendering conversations with it.

Everything is compared as text without whitespace, never as token ids: a tokenizer may merge the
last space or newline of the chat template with the first word of the question, and may split a mark
differently beside another neighbor. Special tokens are compared by id alone, so a user who types
the name of a special token as plain text does not end a turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

# One private character for every special token, one for what has no text, one for each piece of an
# image. They are the last of Unicode, so `>= FIRST_CONTROL` distinguishes them from text.
FIRST_CONTROL, _UNKNOWN, VISUAL = "\U000f0000", "\U0010fffe", "\U0010ffff"
CONTROL = f"[{FIRST_CONTROL}-{VISUAL}]"
_BROKEN = "\ufffd"

# Added tokens that look like marks (<row_1_col_1>, <think>, [IMG]) even if not declared special.
_BRACKETED = re.compile(r"<\S+>|\[\S+\]")


@dataclass(frozen=True, slots=True)
class TokenLine:
    """A row of ids as text without whitespace.

    A special token or a piece of an image is one private character. `owners` are, for every
    character, the first token it comes from and the token after its last. `spaced` says whether
    whitespace preceded it.
    """

    text: str
    owners: list[tuple[int, int]]
    spaced: list[bool]

    def edge(self, at: int) -> bool:
        """Whether no word spans the place before character `at`."""
        if at in (0, len(self.text)) or self.spaced[at]:
            return True
        return not (self.text[at - 1].isalnum() and self.text[at].isalnum())

    def find(self, mark: str, start: int = 0) -> Iterator[int]:
        """Indices from `start` on where `mark` begins outside a word."""
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
    """Converts ids of one tokenizer into lines."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        special = set(tokenizer.all_special_ids)
        for token, added in getattr(tokenizer, "added_tokens_decoder", {}).items():
            if added.special or _BRACKETED.fullmatch(added.content):
                special.add(token)
        self._controls = {
            token: chr(ord(FIRST_CONTROL) + rank) for rank, token in enumerate(sorted(special))
        }
        self.ends = self._get_named("bos_token_id") + self._get_named("eos_token_id")
        # A piece is read after another token, since decoders drop the space at the very start.
        self._before = self._encode("a")[-1:]
        self._before_text = self._decode(self._before)
        self._pieces: dict[int, str] = {}

    def read(self, ids: Sequence[int], visual: Sequence[bool] | None = None) -> TokenLine:
        """The text of a row; positions marked `visual` are pieces of an image."""
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
        """`text` as it would be in a line."""
        return self.read(self._encode(text)).text

    def spells(self, text: str) -> bool:
        """Whether the tokenizer has tokens for all of `text`."""
        unknown = self._get_named("unk_token_id")
        return not unknown or unknown not in self.condense(text)

    def _get_named(self, name: str) -> str:
        """The character of a special token that the tokenizer knows by name, "" without it."""
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
        """The text at `start`, and the token after it: several tokens may spell a character."""
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


# ---- the marks of turns -----------------------------------------------------------------------


def _match_before_images(label: str) -> str:
    return f"(?:{label})(?={CONTROL}*{VISUAL})"


# What processors of transformers write before the frames of a video, without its whitespace:
# Qwen3-VL "<0.5 seconds>", InternVL "Frame1: ", SmolVLM an introduction and "Frame from 00:01:".
_FRAME_LABEL = _match_before_images(
    r"<\d+(?:\.\d+)?seconds>"
    r"|Frame\d+:"
    r"|(?:Youareprovidedthefollowingseriesof[\w-]+framesfroma[\d:]+\[H:MM:SS\]video\.)?"
    r"Framefrom[\d:]+:"
)

# Opening and closing marks of prompts written by hand, tried when the template's are not there.
_HANDWRITTEN = (
    ("USER:", "ASSISTANT:"),
    ("[INST]", "[/INST]"),
    ("<|im_start|>user", "<|im_end|>"),
)


@dataclass(frozen=True, slots=True)
class ChatShape:
    """How a chat template surrounds the user's text; all marks are condensed.

    `opening` and `closing` surround the text of every user turn; `ending` follows the last turn of
    a prompt that waits for an answer. `anchored` says that `opening` is ordinary text that always
    follows a special token. `system` surrounds a system prompt inside the user's turn (Llama 2).
    `written` is a pattern of the template's and the processor's text beside images. If `strict`, a
    row must contain `closing`, too.
    """

    opening: str
    closing: str
    ending: str
    anchored: bool = False
    system: tuple[str, str] | None = None
    written: str = _FRAME_LABEL
    strict: bool = False

    def list_turns(self, line: TokenLine) -> list[list[int]]:
        """The characters of every user turn, without marks and labels."""
        if self.strict and self.closing not in line.text:
            return []
        return [self._list_inside(line.text, start, stop) for start, stop in self._list_spans(line)]

    def _list_spans(self, line: TokenLine) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        start = self._open(line, 0)
        while start is not None:
            stop = next(line.find(self.closing, start), -1) if self.closing else -1
            spans.append((start, stop if stop >= 0 else len(line.text)))
            start = self._open(line, stop + len(self.closing)) if stop >= 0 else None
        if spans and not re.search(CONTROL, self.closing):
            spans[-1] = self._lengthen(line.text, *spans[-1])
        return spans

    def _open(self, line: TokenLine, start: int) -> int | None:
        for at in line.find(self.opening, start):
            if not self.anchored or at == 0 or line.text[at - 1] >= FIRST_CONTROL:
                return at + len(self.opening)
        return None

    def _lengthen(self, text: str, start: int, stop: int) -> tuple[int, int]:
        """End the last turn where the prompt does: its text may contain the closing mark."""
        body = strip_last_controls(text)
        if self.ending and body.endswith(self.ending):
            stop = max(stop, len(body) - len(self.ending))
        return start, stop

    def _list_inside(self, text: str, start: int, stop: int) -> list[int]:
        if self.system is not None and text.startswith(self.system[0], start, stop):
            resume = text.find(self.system[1], start, stop)
            start = start if resume < 0 else resume + len(self.system[1])
        taken: set[int] = set()
        for match in re.finditer(self.written, text[start:stop]):
            taken.update(range(start + match.start(), start + match.end()))
        return [at for at in range(start, stop) if at not in taken]


def learn_shape(template: Any, tokenizer: Any, reader: Reader) -> ChatShape | None:
    """The shape of a chat template, or None if it does not show the user's text.

    `template` is its source, or several by name.
    """
    source = template.get("default") if isinstance(template, dict) else template
    if not source:
        return None
    views = (_Template(tokenizer, source, reader, plain) for plain in (False, True))
    return next((shape for view in views if (shape := _learn(view))), None)


def list_handwritten_shapes(reader: Reader) -> list[ChatShape]:
    """Shapes of handwritten prompts that the tokenizer can spell."""
    shapes: list[ChatShape] = []
    for marks in _HANDWRITTEN:
        if all(reader.spells(mark) for mark in marks):
            opening, closing = (reader.condense(mark) for mark in marks)
            shapes.append(ChatShape(opening, closing, ending=closing, strict=True))
    return shapes


@dataclass(frozen=True, slots=True)
class _Template:
    """A chat template, probed by conversations of words that do not occur in texts."""

    tokenizer: Any
    source: str
    reader: Reader
    plain: bool

    def render_around(
        self, *roles: str, waits: bool = True, media: str | None = None
    ) -> list[str] | None:
        """The text before, between and after the messages of these roles; None if not supported.

        With `waits` the prompt waits for an answer. `media`, "image" or "video", begins the first
        message.
        """
        words = [f"Zq{letter}qz" for letter in "abc"[: len(roles)]]
        messages: list[dict[str, Any]] = [
            {"role": role, "content": word if self.plain else [{"type": "text", "text": word}]}
            for role, word in zip(roles, words, strict=True)
        ]
        if media is not None:
            messages[0]["content"].insert(0, {"type": media})
        try:
            text = self.tokenizer.apply_chat_template(
                messages,
                chat_template=self.source,
                tokenize=False,
                add_generation_prompt=waits,
                add_vision_id=media is not None,
            )
        except Exception:  # a template may refuse a conversation with any error
            return None
        # A template that expects plain text prints the list of parts itself.
        if re.findall("|".join(words), text) != words or re.search(r"['\"]type['\"]", text):
            return None
        return [self.reader.condense(part) for part in re.split("|".join(words), text)]


def _learn(template: _Template) -> ChatShape | None:
    single = template.render_around("user")
    if single is None:
        return None
    answered = template.render_around("user", "assistant", waits=False)
    double = template.render_around("user", "assistant", "user")
    system = template.render_around("system", "user")
    heads = [single[0]]
    if answered and double:
        heads.append(double[2].removeprefix(answered[2]))
    opening = _get_common_start([head[::-1] for head in heads if head])[::-1]
    opening = opening.lstrip(template.reader.ends) or opening
    if not opening:
        return None
    later = [parts[-2] for parts in (double, system) if parts and parts[-2].endswith(opening)]
    return ChatShape(
        opening=opening,
        closing=_learn_closing(single, answered, template.render_around("user", waits=False)),
        ending=strip_last_controls(single[-1]),
        # The start of a row is as good as a special token.
        anchored=_is_anchored(opening, [FIRST_CONTROL + single[0], *later]),
        system=_learn_system(system, opening),
        written=_learn_written(template, opening),
    )


def _learn_closing(single: list[str], answered: list[str] | None, resting: list[str] | None) -> str:
    """What follows the user's text always, or else at least when an answer does."""
    before_answer = [parts[1] for parts in (single, answered) if parts]
    always = _get_common_start([*before_answer, *(resting or [])[1:]])
    return always or _get_common_start(before_answer)


def _is_anchored(opening: str, texts: list[str]) -> bool:
    """Whether `opening`, the end of all texts, is ordinary and always follows a special token."""
    before = [text.removesuffix(opening)[-1:] for text in texts]
    return opening[0] < FIRST_CONTROL and all(mark >= FIRST_CONTROL for mark in before)


def _learn_system(system: list[str] | None, opening: str) -> tuple[str, str] | None:
    if system is None or not system[1] or system[1].endswith(opening):
        return None
    _, found, lead = system[0].rpartition(opening)
    return (lead, system[1]) if found else None


def _learn_written(template: _Template, opening: str) -> str:
    """A pattern of the ordinary text before and after images."""
    patterns = [_FRAME_LABEL]
    for media in ("image", "video"):
        shown = None if template.plain else template.render_around("user", media=media)
        rest = shown[0].rpartition(opening)[2] if shown else ""
        *labels, caption = (_wildcard_digits(text) for text in re.split(f"{CONTROL}+", rest))
        patterns += [_match_before_images(label) for label in labels if label]
        if labels and caption:
            patterns.append(f"(?<={CONTROL}){caption}")
    return "|".join(patterns)


def _wildcard_digits(text: str) -> str:
    """A pattern of `text` with any numbers."""
    return re.sub(r"\d+", r"\\d+", re.escape(text))


def strip_last_controls(text: str) -> str:
    """The text without special tokens at its end."""
    return re.sub(f"{CONTROL}+$", "", text)


def _get_common_start(texts: list[str]) -> str:
    columns = takewhile(lambda column: len(set(column)) == 1, zip(*texts, strict=False))
    return "".join(column[0] for column in columns)
