"""Which tokens of a prompt are the user's own words."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.pruning.prompt.chat_shape import (
    CONTROL,
    VISUAL,
    Reader,
    TokenLine,
    learn_shape,
    list_handwritten_shapes,
)

Words = Callable[[Tensor, Tensor], Tensor]
"""Finds the prompt words: (input_ids, visual mask) -> mask, all ``(b, s)``."""

_WAY_OUT = "Pass processor= to tc.prune, or prompt= as a mask or as a text."


def choose_words(
    model: nn.Module, prompt: Tensor | str | Sequence[str] | Words | None, processor: Any
) -> Words:
    """The way to find the prompt words that the arguments of `tc.prune` ask for."""
    if isinstance(prompt, Tensor):
        return GivenMask(prompt)
    if callable(prompt):
        return prompt
    if prompt is not None:
        reader = processor or load_tokenizer(model)
        return lambda input_ids, visual: mark_text(reader, input_ids, prompt)
    return LazyWords(model, processor)


class GivenMask:
    """A mask that the caller gave to `tc.prune`.

    Parameters
    ----------
    mask : Tensor
        ``(b, s)``.
    name : str
        The argument of `tc.prune` that it was given as.
    """

    def __init__(self, mask: Tensor, name: str = "prompt") -> None:
        self._mask, self._name = mask, name

    def __call__(self, input_ids: Tensor, visual: Tensor) -> Tensor:
        """See `Words`."""
        return self.fit((input_ids.shape[0], input_ids.shape[1]), input_ids.device)

    def fit(self, shape: tuple[int, int], device: torch.device, *, repeats: bool = False) -> Tensor:
        """The mask ``(b, s)`` for tokens of this shape; rows repeated for the beams of generate."""
        mask, (batch, length) = self._mask.to(device).bool(), shape
        rows = len(mask) if mask.dim() == 2 else 0
        fits = rows > 0 and (batch % rows == 0 if repeats else batch == rows)
        if not fits or mask.shape[1] != length:
            raise InputError(
                f"{self._name}= is a mask of shape {tuple(mask.shape)}, but the prompt has shape "
                f"{shape}. Pass one value per token."
            )
        return mask.repeat_interleave(batch // rows, dim=0)


class LazyWords:
    """The tokenizer is loaded when the first picture comes, not before."""

    def __init__(self, model: nn.Module, processor: Any) -> None:
        self._model, self._processor = model, processor
        self._finder: UserWords | None = None

    def __call__(self, input_ids: Tensor, visual: Tensor) -> Tensor:
        """See `Words`."""
        if self._finder is None:
            reader = self._processor or load_tokenizer(self._model)
            template = getattr(reader, "chat_template", None)
            self._finder = _learn_words(reader, repr(template), len(_find_tokenizer(reader)))
        return self._finder.mask(input_ids, visual)


class UserWords:
    """Finds the user's own words in the ids that a vision-language model receives.

    The user's words are the text of the user's turn, without system prompt, chat template, special
    tokens, padding, pictures, and without what a processor writes beside the frames of a video.
    The marks of the turns are learned once from the chat template, by rendering conversations of
    sentinel words. A row in which they do not stand is read by the marks that people write by hand
    (``USER: ... ASSISTANT:``, ``[INST] ... [/INST]``, ChatML). If these are not there either, the
    fallback is all ordinary text after the row's last visual token, or, if there is no such text or
    no visual token, all ordinary text of the row.

    Where a template's marks are ordinary text (LLaVA-1.5), a user's text that imitates them is read
    as the user's while that is possible: ``USER:`` inside a user turn is text, and the last turn
    lasts until the end of a prompt that waits for an answer. What no mark tells apart is not:

    - A text that imitates a whole exchange of turns is read as one.
    - ``USER:`` as a separate word of a system prompt is taken for the start of the user's turn,
      where that is the template's mark (LLaVA-1.5).
    - A system prompt that the template joins to the user's text without any mark (Gemma) is read
      as the user's.
    - The result of a tool that the template renders as a user turn (Qwen) is read as such.

    Parameters
    ----------
    tokenizer
        A tokenizer or a processor of transformers. A processor's chat template goes before its
        tokenizer's.
    turns
        "last" for the words of the last user turn, "all" for those of every user turn.
    """

    def __init__(self, tokenizer: Any, turns: Literal["last", "all"] = "last") -> None:
        if turns not in ("last", "all"):
            raise InputError(f"turns={turns!r} is unknown. Use 'last' or 'all'.")
        self._turns = turns
        inner = _find_tokenizer(tokenizer)
        outer_template = getattr(tokenizer, "chat_template", None)
        template = outer_template or getattr(inner, "chat_template", None)
        self._reader = Reader(inner)
        taught = learn_shape(template, inner, self._reader)
        self._shapes = [*([taught] if taught else []), *list_handwritten_shapes(self._reader)]

    def mask(self, input_ids: Tensor, visual: Tensor) -> Tensor:
        """Mark the user's words.

        Parameters
        ----------
        input_ids
            ``(batch, length)``, as the model receives them, padded on either side.
        visual
            ``(batch, length)`` bool, the positions of images and videos.

        Returns
        -------
        Tensor
            ``(batch, length)`` bool. A row is empty if the user wrote nothing.
        """
        _check_ids(input_ids)
        if visual.shape != input_ids.shape or visual.dtype != torch.bool:
            raise InputError(
                f"visual is {visual.dtype} {tuple(visual.shape)} for input_ids "
                f"{tuple(input_ids.shape)}. Pass a bool tensor of the same shape."
            )
        rows = zip(input_ids.tolist(), visual.tolist(), strict=True)
        return _make_mask([self._find(self._reader.read(*row)) for row in rows], input_ids)

    def _find(self, line: TokenLine) -> list[int]:
        for shape in self._shapes:
            turns = shape.find_turns(line)
            if turns:
                used = turns if self._turns == "all" else turns[-1:]
                return [token for turn in used for token in line.tokens(turn)]
        after = range(line.text.rfind(VISUAL) + 1, len(line.text))
        return list(line.tokens(after)) or list(line.tokens(range(len(line.text))))


@functools.lru_cache(maxsize=2)
def _learn_words(tokenizer: Any, template: str, size: int) -> UserWords:
    """Learn a template once, until the template or the vocabulary changes."""
    return UserWords(tokenizer)


def mark_text(tokenizer: Any, input_ids: Tensor, text: str | Sequence[str]) -> Tensor:
    """Mark where a text stands in each row, at its last occurrence.

    Whitespace does not matter, so a leading space merged into the first token does not either.

    Parameters
    ----------
    tokenizer
        A tokenizer or a processor of transformers.
    input_ids
        ``(batch, length)``, as the model receives them.
    text
        One text for all rows, or one for each. Rows that were repeated for beam search share
        theirs: each text is for the same number of consecutive rows.

    Returns
    -------
    Tensor
        ``(batch, length)`` bool.

    Raises
    ------
    InputError
        If a text is not in its row.
    """
    _check_ids(input_ids)
    rows = input_ids.tolist()
    texts = [text] if isinstance(text, str) else list(text)
    if not texts or len(rows) % len(texts):
        raise InputError(
            f"There are {len(texts)} texts for {len(rows)} rows of input_ids. "
            "Pass one text for all rows, or one for each."
        )
    reader = Reader(_find_tokenizer(tokenizer))
    beams = len(rows) // len(texts)
    return _make_mask(
        [_locate(reader, ids, texts[row // beams], row) for row, ids in enumerate(rows)], input_ids
    )


def load_tokenizer(model: Any) -> Any:
    """Load the tokenizer that belongs to a model, by the name the model was loaded by.

    Files on this machine are tried before the hub, and the hub only for what is no folder. A chat
    template that is stored with the processor alone is given to the tokenizer.

    Raises
    ------
    InputError
        If the model has no name or there is no tokenizer of that name.
    """
    kind = type(model).__name__
    named = (getattr(model, "config", None), "_name_or_path"), (model, "name_or_path")
    name = next((found for owner, key in named if (found := getattr(owner, key, None))), None)
    if not name:
        raise InputError(f"This {kind} has no name to load its tokenizer by. {_WAY_OUT}")
    try:
        return _load(name)
    except Exception as error:  # missing, broken or unreachable: the way out is the same
        raise InputError(
            f"The tokenizer {name!r} of this {kind} cannot be loaded. {_WAY_OUT}"
        ) from error


def _load(name: str) -> Any:
    from huggingface_hub import file_exists  # slow to import, seldom needed

    try:
        return _load_files(name, local=True)
    except Exception:
        # Asked once: the loader itself would call a hub that is out of reach for most of a minute.
        if Path(name).exists() or not file_exists(name, "config.json"):
            raise
    return _load_files(name, local=False)


def _load_files(name: str, local: bool) -> Any:
    from transformers import AutoTokenizer  # slow to import, seldom needed

    tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=local)
    if not tokenizer.encode("a", add_special_tokens=False):
        # What transformers makes of a Qwen checkpoint without the files of a tokenizer.
        raise OSError(f"The tokenizer {name!r} has no words.")
    return _complete(tokenizer, name, local)


def _complete(tokenizer: Any, name: str, local: bool) -> Any:
    """Give the tokenizer the processor's chat template if it has none."""
    if getattr(tokenizer, "chat_template", None):
        return tokenizer
    from transformers.processing_utils import ProcessorMixin  # slow to import too

    try:
        stored, _ = ProcessorMixin.get_processor_dict(name, local_files_only=local)
    except Exception:  # many checkpoints have no processor; the words are found without it
        return tokenizer
    tokenizer.chat_template = stored.get("chat_template")
    return tokenizer


def _find_tokenizer(tokenizer: Any) -> Any:
    """The tokenizer of a processor, or the tokenizer itself."""
    for candidate in (tokenizer, getattr(tokenizer, "tokenizer", None)):
        if hasattr(candidate, "decode") and hasattr(candidate, "all_special_ids"):
            return candidate
    raise InputError(
        f"{type(tokenizer).__name__} is not a tokenizer and has none. "
        "Pass a tokenizer or a processor of transformers."
    )


def _locate(reader: Reader, ids: Sequence[int], text: str, row: int) -> list[int]:
    wanted = re.sub(f"^{CONTROL}+|{CONTROL}+$", "", reader.condense(text))
    if not wanted:
        raise InputError(f"The text {text!r} for row {row} has no words. {_WAY_OUT}")
    line, size = reader.read(ids), len(wanted)
    places = [at for at in line.find(wanted) if line.edge(at + size)]
    place = places[-1] if places else line.text.rfind(wanted)
    if place < 0:
        raise InputError(
            f"The text {text!r} does not stand in row {row} of input_ids. Pass it exactly as it "
            "was given to the processor (case and punctuation matter), or pass a mask."
        )
    return list(line.tokens(range(place, place + size)))


def _make_mask(tokens: list[list[int]], like: Tensor) -> Tensor:
    mask = torch.zeros(like.shape, dtype=torch.bool)
    for row, chosen in enumerate(tokens):
        mask[row, chosen] = True
    return mask.to(like.device)


def _check_ids(input_ids: Tensor) -> None:
    if input_ids.ndim != 2 or input_ids.is_floating_point():
        raise InputError(
            f"input_ids is {input_ids.dtype} {tuple(input_ids.shape)}. "
            "Pass integers of shape (batch, length)."
        )
