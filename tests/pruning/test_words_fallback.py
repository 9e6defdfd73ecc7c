"""Prompts that no chat template explains, and arguments that are wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel

from tests.pruning.tokenizers_for_words import (
    FAST,
    IMAGE,
    LLAVA,
    QUESTION,
    bare,
    decoded,
    encode,
    pad,
    said,
    tokenizer_for,
    words_for,
)
from tokencover.errors import InputError
from tokencover.pruning.prompt import PromptLocator


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Look. <image><image>\nWhich colour?\n", "Which colour?"),
        ("Which colour?", "Which colour?"),
        ("Which colour? <image>", "Which colour?"),
        ("<image>", ""),
        ("A chat. USER: <image>\nWhich colour? ASSISTANT:", "Which colour?"),
        ("[INST] <image>\nWhich colour? [/INST]", "Which colour?"),
        ("<image> says USER: hello", "says USER: hello"),
    ],
)
@pytest.mark.parametrize("side", ["left", "right"])
def test_fallback_is_the_text_after_the_last_picture(prompt: str, expected: str, side: str) -> None:
    tokenizer = bare()
    ids, visual = pad(tokenizer, [prompt, prompt + "<pad>" * 5], "<image>", side)
    assert decoded(tokenizer, ids, PromptLocator(tokenizer).mask(ids, visual)) == [expected] * 2


def test_fallback_when_the_templates_marks_are_not_in_the_row() -> None:
    tokenizer = tokenizer_for("qwen", "bytes")
    ids, visual = pad(tokenizer, ["Look: <|image_pad|> Which colour?"], "<|image_pad|>", "left")
    mask = words_for("qwen", "bytes").mask(ids, visual)
    assert decoded(tokenizer, ids, mask) == ["Which colour?"]


def test_added_tokens_in_brackets_are_no_words() -> None:
    tokenizer = bare()
    tokenizer.add_tokens(["<row_1_col_1>", "[IMG]", "colour"])
    prompt = "<image><row_1_col_1> Which colour? [IMG]"
    ids, visual = pad(tokenizer, [prompt], "<image>", "left")
    assert decoded(tokenizer, ids, PromptLocator(tokenizer).mask(ids, visual)) == ["Which colour?"]


def test_unspellable_marks_are_not_believed() -> None:
    core = Tokenizer(WordLevel({"<unk>": 0, "red": 1, "bus": 2}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = FAST(tokenizer_object=core, unk_token="<unk>")
    ids = torch.tensor([[1, 0, 0, 2, 0, 0, 1]])
    mask = PromptLocator(tokenizer).mask(ids, torch.zeros_like(ids, dtype=torch.bool))
    assert mask.tolist() == [[True, False, False, True, False, False, True]]


def test_template_that_never_shows_the_text_is_ignored() -> None:
    tokenizer = bare()
    tokenizer.chat_template = "{{ raise_exception('no') }}"
    ids, visual = pad(tokenizer, ["<image> Which colour?"], "<image>", "left")
    assert decoded(tokenizer, ids, PromptLocator(tokenizer).mask(ids, visual)) == ["Which colour?"]


def test_processors_template_goes_before_the_tokenizers() -> None:
    tokenizer = bare()
    tokenizer.chat_template = "{% for m in messages %}Q {{ m['content'] }} A{% endfor %}"
    processor = SimpleNamespace(tokenizer=tokenizer, chat_template={"default": LLAVA})
    ids, visual = pad(tokenizer, ["USER: <image>\nQ which A ASSISTANT:"], "<image>", "left")
    assert decoded(tokenizer, ids, PromptLocator(processor).mask(ids, visual)) == ["Q which A"]
    assert decoded(tokenizer, ids, PromptLocator(tokenizer).mask(ids, visual)) == ["which"]


def test_tokenizer_that_wraps_another_library() -> None:
    class Wrapped:
        tokenizer = object()

        def __getattr__(self, name: str) -> Any:
            return getattr(tokenizer_for("llava", "llama"), name)

    ids, visual = encode("llava", "llama", [said("user", IMAGE, QUESTION)])
    mask = PromptLocator(Wrapped()).mask(ids, visual)
    assert torch.equal(mask, words_for("llava", "llama").mask(ids, visual))


def test_wrong_arguments_are_named() -> None:
    words = words_for("qwen", "bytes")
    ids = torch.zeros(2, 3, dtype=torch.long)
    with pytest.raises(InputError, match=r"turns='first'.*'last' or 'all'"):
        PromptLocator(bare(), turns="first")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"visual is torch.bool \(2, 4\).*\(2, 3\)"):
        words.mask(ids, torch.zeros(2, 4, dtype=torch.bool))
    with pytest.raises(InputError, match="visual is torch"):
        words.mask(ids, ids)
    with pytest.raises(InputError, match=r"input_ids is torch.float32 \(2, 3\)"):
        words.mask(ids.float(), ids.bool())
    with pytest.raises(InputError, match="SimpleNamespace is not a tokenizer"):
        PromptLocator(SimpleNamespace())
