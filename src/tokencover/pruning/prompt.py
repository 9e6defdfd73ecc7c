"""Which tokens are the prompt: the text of the last user turn."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.pruning.call_inputs import PromptSelector
from tokencover.pruning.chat_template import (
    CONTROL,
    VISUAL,
    Reader,
    TokenLine,
    learn_shape,
    list_handwritten_shapes,
    strip_last_controls,
)

_WAY_OUT = "Pass processor= to tc.prune, or prompt= as a mask or as a text."


def resolve_prompt_selector(
    model: nn.Module, prompt: str | Sequence[str] | PromptSelector | None, processor: Any
) -> PromptSelector:
    """What marks the prompt tokens, from the arguments of `tc.prune`."""
    if callable(prompt):
        return prompt
    if prompt is not None:
        reader = processor or load_tokenizer(model)
        return lambda input_ids, visual: mark_text(reader, input_ids, prompt)

    @functools.cache  # the tokenizer is loaded for the first image, not before
    def get_locator() -> PromptLocator:
        reader = processor or load_tokenizer(model)
        template = getattr(reader, "chat_template", None)
        return _learn_template(reader, repr(template), len(_get_tokenizer(reader)))

    return lambda input_ids, visual: get_locator().mask(input_ids, visual)


class PromptLocator:
    """Locates the prompt tokens in the ids that a vision-language model receives.

    They are the text of the user's turn, without system prompt, chat template, special tokens,
    padding, images, and without what a processor writes beside the frames of a video. The marks of
    turns are learned once from the chat template, by rendering conversations of sentinel words. A
    row without them is read by handwritten marks (``USER: ... ASSISTANT:``, ``[INST] ...
    [/INST]``, ChatML). Without these either, the fallback is all ordinary text after the row's last
    visual token, or, if there is none, all ordinary text of the row.

    Where a template's marks are ordinary text (LLaVA-1.5), a user's text that imitates them is read
    as the user's where possible: ``USER:`` inside a user turn is text, and the last turn lasts
    until the end of a prompt that waits for an answer. Some cases are ambiguous:

    - A text that imitates a whole exchange of turns is read as one.
    - ``USER:`` as a separate word of a system prompt is read as the start of the user's turn, where
      that is the template's mark (LLaVA-1.5).
    - A system prompt that the template joins to the user's text without any mark (Gemma) is read
      as the user's.
    - The result of a tool that the template renders as a user turn (Qwen) is read as such.

    `tokenizer` may be a processor, whose chat template precedes its tokenizer's. `turns` is "last"
    for the last user turn, "all" for every user turn.
    """

    def __init__(self, tokenizer: Any, turns: Literal["last", "all"] = "last") -> None:
        if turns not in ("last", "all"):
            raise InputError(f"turns={turns!r} is unknown. Use 'last' or 'all'.")
        self._turns = turns
        inner = _get_tokenizer(tokenizer)
        outer_template = getattr(tokenizer, "chat_template", None)
        template = outer_template or getattr(inner, "chat_template", None)
        self._reader = Reader(inner)
        learned = learn_shape(template, inner, self._reader)
        self._shapes = [*([learned] if learned else []), *list_handwritten_shapes(self._reader)]

    def mask(self, input_ids: Tensor, visual: Tensor) -> Tensor:
        """Mark the prompt tokens, ``(batch, length)`` bool.

        `input_ids` ``(batch, length)`` may be padded on either side; `visual` marks images and
        videos. A row of the result is empty if the user wrote nothing.
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
            turns = shape.list_turns(line)
            if turns:
                used = turns if self._turns == "all" else turns[-1:]
                return [token for turn in used for token in line.tokens(turn)]
        after = range(line.text.rfind(VISUAL) + 1, len(line.text))
        return list(line.tokens(after)) or list(line.tokens(range(len(line.text))))


@functools.lru_cache(maxsize=2)
def _learn_template(tokenizer: Any, template: str, size: int) -> PromptLocator:
    """Learn a template once, until the template or the vocabulary changes."""
    return PromptLocator(tokenizer)


def mark_text(tokenizer: Any, input_ids: Tensor, text: str | Sequence[str]) -> Tensor:
    """Mark where a text occurs last in each row, ``(batch, length)`` bool.

    Whitespace does not matter, so a leading space merged into the first token does not either. Pass
    one text for all rows, or one per row. Rows that were repeated for beam search share theirs.
    """
    _check_ids(input_ids)
    rows = input_ids.tolist()
    texts = [text] if isinstance(text, str) else list(text)
    if not texts or len(rows) % len(texts):
        raise InputError(
            f"There are {len(texts)} texts for {len(rows)} rows of input_ids. "
            "Pass one text for all rows, or one for each."
        )
    reader = Reader(_get_tokenizer(tokenizer))
    beams = len(rows) // len(texts)
    return _make_mask(
        [_locate(reader, ids, texts[row // beams], row) for row, ids in enumerate(rows)], input_ids
    )


def mark_questions(tokenizer: Any, input_ids: Tensor, prompts: Sequence[tuple[str, str]]) -> Tensor:
    """Mark the question of each row, ``(batch, length)`` bool, by the text that follows it."""
    reader = Reader(_get_tokenizer(tokenizer))
    tokens = [
        _locate(reader, ids, question, row, ending) if question.strip() else []
        for row, (ids, (question, ending)) in enumerate(
            zip(input_ids.tolist(), prompts, strict=True)
        )
    ]
    return _make_mask(tokens, input_ids)


def load_tokenizer(model: Any) -> Any:
    """Load the tokenizer of a model, by the name that the model was loaded by.

    Local files are tried before the Hugging Face Hub, and the Hub only for what is not a folder. A
    chat template that is saved with the processor alone is given to the tokenizer.
    """
    kind = type(model).__name__
    named = (getattr(model, "config", None), "_name_or_path"), (model, "name_or_path")
    name = next((found for owner, key in named if (found := getattr(owner, key, None))), None)
    if not name:
        raise InputError(f"This {kind} has no name to load its tokenizer by. {_WAY_OUT}")
    try:
        return _load(name)
    except Exception as error:  # missing, broken or unreachable: the fix is the same
        raise InputError(
            f"The tokenizer {name!r} of this {kind} cannot be loaded. {_WAY_OUT}"
        ) from error


def _load(name: str) -> Any:
    from huggingface_hub import file_exists  # slow to import, seldom needed

    try:
        return _load_files(name, local=True)
    except Exception:
        # Asked once: the loader itself would retry an unreachable hub for most of a minute.
        if Path(name).exists() or not file_exists(name, "config.json"):
            raise
    return _load_files(name, local=False)


def _load_files(name: str, local: bool) -> Any:
    """Load from this machine, or from the Hub."""
    from transformers import AutoTokenizer  # slow to import, seldom needed

    tokenizer = AutoTokenizer.from_pretrained(name, local_files_only=local)
    if not tokenizer.encode("a", add_special_tokens=False):
        # What transformers builds from a Qwen checkpoint without tokenizer files.
        raise OSError(f"The tokenizer {name!r} has no words.")
    return _complete(tokenizer, name, local)


def _complete(tokenizer: Any, name: str, local: bool) -> Any:
    """Give the tokenizer the processor's chat template if it has none."""
    if getattr(tokenizer, "chat_template", None):
        return tokenizer
    from transformers.processing_utils import ProcessorMixin  # slow to import too

    try:
        stored, _ = ProcessorMixin.get_processor_dict(name, local_files_only=local)
    except Exception:  # many checkpoints have no processor, and need none
        return tokenizer
    tokenizer.chat_template = stored.get("chat_template")
    return tokenizer


def _get_tokenizer(tokenizer: Any) -> Any:
    """The tokenizer of a processor, or the tokenizer itself."""
    for candidate in (tokenizer, getattr(tokenizer, "tokenizer", None)):
        if hasattr(candidate, "decode") and hasattr(candidate, "all_special_ids"):
            return candidate
    raise InputError(
        f"{type(tokenizer).__name__} is not a tokenizer and has none. "
        "Pass a tokenizer or a processor of transformers."
    )


def _locate(reader: Reader, ids: Sequence[int], text: str, row: int, ending: str = "") -> list[int]:
    """The tokens of a text at its last occurrence before the ending."""
    wanted = re.sub(f"^{CONTROL}+|{CONTROL}+$", "", reader.condense(text))
    if not wanted:
        raise InputError(f"The text {text!r} for row {row} has no words. {_WAY_OUT}")
    line, size = reader.read(ids), len(wanted)
    body, tail = (strip_last_controls(each) for each in (line.text, reader.condense(ending)))
    end = len(body) - len(tail) if body.endswith(tail) else len(line.text)
    places = [at for at in line.find(wanted) if at + size <= end and line.edge(at + size)]
    place = places[-1] if places else line.text.rfind(wanted, 0, end)
    if place < 0:
        raise InputError(
            f"The text {text!r} is not in row {row} of input_ids. Pass it exactly as it "
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
